"""Inline kernels with named operands: shapes and dtypes that follow, checks, mutation, tuning, operators."""

from typing import Any

import pytest
import torch

import torch_mojo
from torch_mojo.errors import KernelError, MojoCompileError, SignatureError

AT = "thread_position_in_grid.x"


def pointwise(source: str, name: str = "probe", **how: Any) -> Any:
    given: dict[str, Any] = {
        "inputs": {"x": "T[...]"},
        "outputs": {"y": "T[...]"},
        "grid": "y.size",
    }
    return torch_mojo.kernel(name, source=source, **(given | how))


def layouts() -> list[torch.Tensor]:
    whole = torch.randn(6, 8)
    return [
        whole,
        whole.t(),
        whole[::2, 1::3],
        whole[2:3].expand(4, 8),
        whole[3, 5],
        whole[:0],
        whole.view(2, 3, 2, 4).permute(3, 1, 0, 2),
    ]


def test_shapes_follow(device: str) -> None:
    pool = torch_mojo.kernel(
        "pool",
        source="""
            var i = thread_position_in_grid.x
            var ch = i % c
            var j = i // c % (w // 2)
            y[i // (c * (w // 2)), j, ch] = x[i // (c * (w // 2)), 2 * j, ch] + s.cast[T]()
            z[i] = Int32(j)
        """,
        inputs={"x": "T[n, w, c]", "s": "f32"},
        outputs={"y": "T[n, w // 2, c]", "z": "i32[n * (w // 2) * c]"},
        params={"BLOCK": 128},
        grid="y.size",
        threadgroup="BLOCK",
    )
    x = torch.randn(2, 7, 3)
    y, z = pool(x, 2.0)
    torch.testing.assert_close(y, x[:, 0:6:2] + 2)
    assert z.tolist() == [j for _ in range(2) for j in range(3) for _ in range(3)]
    y, _ = pool(x.transpose(1, 2).contiguous().transpose(1, 2), 1.5)
    torch.testing.assert_close(y, x[:, 0:6:2] + 1.5)
    assert pool(torch.randn(0, 4, 3), 1.0)[0].shape == (0, 2, 3)


def test_every_layout(device: str) -> None:
    kernel = pointwise(f"y[{AT}] = x[{AT}] * 2")
    for x in layouts():
        torch.testing.assert_close(kernel(x), x * 2)
    matrix = torch_mojo.kernel(
        "turned",
        source="""
            var p = thread_position_in_grid
            y[p.y, p.x] = x[p.x, p.y]
        """,
        inputs={"x": "T[a, b]"},
        outputs={"y": "T[b, a]"},
        grid="(a, b)",
    )
    for x in layouts()[:4]:
        torch.testing.assert_close(matrix(x), x.t())


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64]
)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    x = torch.arange(-6, 6).to(dtype).view(3, 4)
    assert torch.equal(pointwise(f"y[{AT}] = x[{AT}] + x[{AT}]")(x), x + x)


def test_dims_that_do_not_fit() -> None:
    kernel = pointwise(
        f"y[{AT}] = a[{AT}] + b[{AT}]",
        "add",
        inputs={"a": "T[..., n]", "b": "T[..., n]"},
        outputs={"y": "T[..., n]"},
    )
    one = torch.ones(2, 3)
    assert torch.equal(kernel(one, one), one + one)
    for other, text in (
        (
            torch.ones(2, 4),
            r"\[add\] b has 4 in dimension 1; T\[\.\.\., n\] says 3, as a\.shape\[1\]",
        ),
        (torch.ones(3, 3), r"\[add\] '\.\.\.' is \(3,\) in b and \(2,\) in a"),
        (torch.ones(3), r"\[add\] '\.\.\.' is \(\) in b and \(2,\) in a"),
        (torch.ones(()), r"\[add\] b has 0 dimension\(s\)"),
        (one.double(), r"\[add\] b has dtype float64; T is float32, as a"),
    ):
        with pytest.raises(SignatureError, match=text):
            kernel(one, other)
    assert torch.equal(kernel(one, one), one + one)
    fixed = pointwise(f"y[{AT}] = x[{AT}]", inputs={"x": "f32[n, 3]"}, outputs={"y": "f32[n, 3]"})
    with pytest.raises(SignatureError, match=r"x has 4 in dimension 1; f32\[n, 3\] says 3"):
        fixed(torch.ones(2, 4))
    with pytest.raises(SignatureError, match=r"x has dtype float64; f32\[n, 3\] takes float32"):
        fixed(torch.ones(2, 3).double())


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"outputs": {"y": "T[m]"}}, "y uses m, which no input gives a value"),
        ({"outputs": {"y": "U[n]"}}, "the output y has the dtype U, which no input has"),
        ({"outputs": {"y": "T"}}, "the output y is a number"),
        ({"grid": "q"}, "grid uses q"),
        ({"grid": "y.shape"}, "is not understood"),
        ({"grid": "n / 2"}, "is not understood"),
        ({"inputs": {"x": "T[T]"}, "outputs": {"y": "T[T]"}}, "T is a size and something else"),
        ({"grid": "(n, n, n, n)"}, "has 4 sizes"),
        ({"grid": None}, "has no grid"),
        ({"inputs": {"x": "T[n]", "z": "T[n]"}}, "the input z is not used"),
        ({"inputs": {"x": "float33[n]"}}, "unknown dtype 'float33'"),
        ({"inputs": {"x": "T[n"}}, "x is declared as 'T"),
        ({"init": {"x": 0}}, "init names x, which is no output"),
        ({"mutates": "y"}, "mutates names y, which is no input tensor"),
        ({"params": {"K": 1.5}}, "the parameter K is 1.5"),
        ({"params": {"x": 1}}, "x is declared twice"),
        ({"outputs": {}}, "has no output"),
        ({"source": ""}, "has no source"),
    ],
)
def test_declarations_that_do_not_fit(how: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {
        "source": f"y[{AT}] = x[{AT}]",
        "inputs": {"x": "T[n]"},
        "outputs": {"y": "T[n]"},
        "grid": "n",
    }
    with pytest.raises(SignatureError) as caught:
        torch_mojo.kernel("probe", **(given | how))
    assert text in str(caught.value) and "[probe]" in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "given", "wanted"),
    [
        ("f32", 5.0, 5.0),
        ("f32", 3, 3.0),
        ("f32", True, 1.0),
        ("f64", 0.1, 0.1),
        ("i64", 2**53 + 1, 2**53 + 1),
        ("u8", 255, 255),
    ],
)
def test_numbers(declared: str, given: Any, wanted: float) -> None:
    """U61: a number has its declared dtype."""
    kernel = torch_mojo.kernel(
        "number", source="y[0] = s", inputs={"s": declared}, outputs={"y": f"{declared}[1]"}, grid=1
    )
    assert kernel(given).tolist() == [wanted]


def test_a_number_that_does_not_fit() -> None:
    kernel = torch_mojo.kernel(
        "number", source="y[0] = s", inputs={"s": "u8"}, outputs={"y": "u8[1]"}, grid=1
    )
    for value in (256, -1):
        with pytest.raises(KernelError, match=rf"\[number\] s={value} does not fit"):
            kernel(value)
    flag = torch_mojo.kernel(
        "flag", source="y[0] = 3 if s else 4", inputs={"s": "bool"}, outputs={"y": "i32[1]"}, grid=1
    )
    assert flag(True).item() == 3 and flag(False).item() == 4


def test_parameters(device: str) -> None:
    """U64: each value of a parameter is its own kernel; so is the text that a closure makes."""
    kernel = pointwise(
        f"y[{AT}] = (x[{AT}] + Scalar[T](K)).cast[U]()",
        outputs={"y": "U[...]"},
        params={"K": 1, "U": torch.float32},
    )
    x = torch.tensor([10.0])
    assert [kernel(x, K=k).item() for k in (1, 2, 3, 1)] == [11, 12, 13, 11]
    assert kernel(x).item() == 11
    found = kernel(x, U=torch.float64)
    assert found.dtype == torch.float64 and found.item() == 11
    for k in (5, 6):
        assert pointwise(f"y[{AT}] = x[{AT}] + {k}")(x).item() == 10 + k


def test_mutation(device: str) -> None:
    """U62: the write reaches the caller's memory, strided too, and a compiled function sees it in order."""
    add_one = torch_mojo.kernel(
        "add_one", source=f"x[{AT}] += 1", inputs={"x": "T[n]"}, mutates=("x",), grid="n"
    )
    x = torch.zeros(3)
    version = x._version
    assert add_one(x) is None
    assert x.tolist() == [1, 1, 1] and x._version > version
    whole = torch.zeros(7)
    add_one(whole[1::2])
    assert whole.tolist() == [0, 1, 0, 1, 0, 1, 0]

    def around(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x * 2
        add_one(x)
        return before, x * 2

    for function in (around, torch.compile(around, backend="aot_eager", fullgraph=True)):
        x = torch.zeros(3)
        before, after = function(x)
        assert (
            before.tolist() == [0, 0, 0] and after.tolist() == [2, 2, 2] and x.tolist() == [1, 1, 1]
        )


def test_an_input_is_not_written() -> None:
    """U62: refused when it is built, at the line that writes."""
    kernel = pointwise(f"""
        x[{AT}] = 3
        y[{AT}] = x[{AT}]
    """)
    with pytest.raises(
        MojoCompileError, match=r"an input is not written: declare it with mutates="
    ) as caught:
        kernel(torch.ones(2))
    assert __file__ in str(caught.value)


def test_only_what_is_atomic_is_atomic() -> None:
    kernel = pointwise(f"_ = y.atomic_add({AT}, x[{AT}])")
    with pytest.raises(
        MojoCompileError, match="the operand is not atomic: declare it with atomic="
    ):
        kernel(torch.ones(2))


def test_atomics(device: str) -> None:
    kernel = torch_mojo.kernel(
        "extremes",
        source=f"""
            var v = x[{AT}]
            high.atomic_max(0, v)
            low.atomic_min(0, v)
            _ = total.atomic_add(IndexList[2](0, 0), v)
        """,
        inputs={"x": "T[n]"},
        outputs={"high": "T[1]", "low": "T[1]", "total": "T[1, 1]"},
        init={"high": -(2**31), "low": 2**31 - 1, "total": 0},
        atomic=("high", "low", "total"),
        grid="n",
    )
    x = torch.randint(-1000, 1000, (100_000,), dtype=torch.int32)
    high, low, total = kernel(x)
    assert (high.item(), low.item(), total.item()) == (x.max(), x.min(), x.sum())


def test_bounds(device: str) -> None:
    kernel = pointwise(f"y[{AT}] = x[{AT} - 1]", "left", bounds_check=True)
    with pytest.raises(
        KernelError, match=r"^\[left\] index -1 of x is out of range; its shape is \(5,?\)$"
    ):
        kernel(torch.ones(5))
    matrix = torch_mojo.kernel(
        "wide",
        source=f"y[{AT}, 4] = x[{AT}, 0]",
        inputs={"x": "T[n, m]"},
        outputs={"y": "T[n, m]"},
        grid="n",
        bounds_check=True,
    )
    with pytest.raises(
        KernelError, match=r"index 4 of y is out of range in dimension 1; its shape is \(5, 3\)"
    ):
        matrix(torch.ones(5, 3))
    assert torch.equal(matrix(torch.ones(2, 5))[:, 4], torch.ones(2))


def test_debugging_checks_bounds(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("TORCH_MOJO_DEBUG", "1")
    kernel = pointwise(f"y[{AT}] = x[{AT} + 1]", "right")
    with pytest.raises(KernelError, match=r"\[right\] index 5 of x"):
        kernel(torch.ones(5))


@pytest.mark.parametrize("word", ["barrier()", "var s = Shared[T, 8]()", "var v = warp.sum(x[0])"])
def test_what_only_a_gpu_has(word: str) -> None:
    kernel = pointwise(f"{word}\ny[{AT}] = x[{AT}]")
    with pytest.raises(
        SignatureError, match=r"\[probe\] the body uses \w+, which a CPU does not have"
    ):
        kernel(torch.ones(2))


def test_a_grid_of_shapes(device: str) -> None:
    kernel = pointwise(f"y[{AT}] = x[{AT}]", grid="x.shape[-1] * x.shape[0]")
    x = torch.randn(3, 4)
    assert torch.equal(kernel(x), x)
    with pytest.raises(SignatureError, match=r"x has 0 dimension\(s\), and .* asks for number -1"):
        kernel(torch.ones(()))


def test_too_big_a_threadgroup(device: str) -> None:
    kernel = pointwise(f"y[{AT}] = x[{AT}]", params={"BLOCK": 64}, threadgroup="BLOCK")
    assert torch.equal(kernel(torch.ones(3)), torch.ones(3))
    with pytest.raises(
        KernelError, match=r"threadgroup \(2048, 1, 1\) has 2048 threads; the limit is 1024"
    ):
        kernel(torch.ones(3), BLOCK=2048)


def test_tuning_leaves_the_buffers_alone(device: str) -> None:
    """U63: 120, then 240; the second process of the same kernel measures nothing."""
    total = torch_mojo.kernel(
        "total",
        source=f"_ = y.atomic_add(0, x[{AT}])",
        inputs={"x": "T[n]", "y": "T[1]"},
        mutates="y",
        atomic="y",
        params={"BLOCK": 64},
        grid="n",
        threadgroup="BLOCK",
    )
    x, y = torch.ones(120), torch.zeros(1)
    report = total.tune({"BLOCK": [32, 128, 4096]}, (x, y), repeat=3)
    assert y.item() == 0 and len(report.rows) == 3
    assert isinstance(report.rows[2][1], str) and "4096" in report.rows[2][1]
    assert report.best in ({"BLOCK": 32}, {"BLOCK": 128}) and "BLOCK" in str(report)
    total(x, y)
    assert y.item() == 120
    total(x, y)
    assert y.item() == 240
    again = total.tune({"BLOCK": [32, 128, 4096]}, (x, y), repeat=3)
    assert not again.measured and again.rows == report.rows and y.item() == 240
    with pytest.raises(SignatureError, match="it has no parameter WIDTH"):
        total.tune({"WIDTH": [1]}, (x, y))


def test_as_an_operator(device: str) -> None:
    square = torch_mojo.kernel(
        "square",
        source=f"y[{AT}] = x[{AT}] * x[{AT}] * s.cast[T]()",
        inputs={"x": "T[...]", "s": "f64"},
        outputs={"y": "T[...]"},
        grid="y.size",
    )
    op = square.as_op("tm_inline::square")
    op.register_autograd(
        lambda ctx, grad: (2 * grad * ctx.saved_tensors[0] * ctx.s, None),
        setup_context=lambda ctx, inputs, output: (
            ctx.save_for_backward(inputs[0]),
            setattr(ctx, "s", inputs[1]),
        ),
    )
    assert isinstance(op, torch_mojo.MojoOp)
    assert op.schema == "tm_inline::square(Tensor x, float s) -> Tensor"
    for x in layouts()[:6]:
        for grad in (False, True):
            x = x.detach().requires_grad_(grad)
            torch.library.opcheck(torch.ops.tm_inline.square.default, (x, 3.0), test_utils="ALL")
    x = torch.randn(3, 4, requires_grad=True)
    op(x, 3.0).sum().backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())
    batched = torch.vmap(lambda v: op(v, 2.0), in_dims=1, out_dims=1)(x.detach())
    torch.testing.assert_close(batched, 2 * x.detach() ** 2)


def test_a_second_call_does_not_ask_for_shapes(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The router makes the outputs by itself: Python would take ten times as long as the call."""
    from torch_mojo.inline.listed import Listed
    from torch_mojo.inline.shapes import Shapes

    asked = []
    for way in (Shapes, Listed):
        real = way.allocations

        def counted(self: Any, *args: Any, _real: Any = real, **kwargs: Any) -> Any:
            asked.append(self.label)
            return _real(self, *args, **kwargs)

        monkeypatch.setattr(way, "allocations", counted)
    body = "y[thread_position_in_grid.x] = x[thread_position_in_grid.x] + 1"
    named = torch_mojo.kernel(
        "asked", source=body, inputs={"x": "T[n]"}, outputs={"y": "T[n]"}, grid="n"
    )
    listed = torch_mojo.kernel("asked", ["x"], ["y"], body)

    def call(n: int) -> None:
        x = torch.arange(n, dtype=torch.float32, device=device)
        (other,) = listed(
            inputs=[x],
            grid=(n, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[x.dtype],
        )
        assert torch.equal(named(x), x + 1) and torch.equal(other, x + 1)

    call(5)
    asked.clear()
    for n in (5, 7, 64):
        call(n)
    assert not asked
