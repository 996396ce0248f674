"""Gradients, vmap, autocast."""

import ops
import pytest
import torch

import torch_mojo

THREE = """
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("three")
struct Three:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=2, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            for j in range(x.dim_size(1)):
                output[i, j] = 3 * x[i, j]
"""


@torch_mojo.mojo_op("tm_grad::three", source=THREE)
def three(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


three.register_autograd(lambda ctx, grad: three(grad))


def test_gradients_of_every_layout() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    z = torch.randn(2, 3, requires_grad=True)
    w = torch.arange(12.0).view(2, 6)
    (torch.cat([three(x), three(z)], 1) * w).sum().backward()
    assert x.grad.tolist() == [[0, 3, 6], [18, 21, 24]]
    assert z.grad.tolist() == [[9, 12, 15], [27, 30, 33]]
    x.grad = None
    three(x).sum().backward()
    assert x.grad.tolist() == [[3] * 3] * 2
    x.grad = None
    three(x).t().contiguous().mul(torch.arange(6.0).view(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0, 6, 12], [3, 9, 15]]
    empty = torch.empty(0, 3, requires_grad=True)
    three(empty).sum().backward()
    assert empty.grad.shape == (0, 3)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_same_tensor_twice(compiled: bool) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return ops.mul(x, x).sum()

    f = torch.compile(loss, fullgraph=True) if compiled else loss
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    f(x).backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]
    f(x).backward()
    assert x.grad.tolist() == [4.0, 8.0, 12.0]


def test_gradcheck() -> None:
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ops.mul, (x, y))


def test_one_of_several_outputs() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    first, index = ops.two(x)
    assert not index.requires_grad
    first.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_missing_formula_is_an_error_that_names_the_operator() -> None:
    x = torch.tensor([1.0], requires_grad=True)
    y = ops.double(x)
    assert y.requires_grad, "never a silently detached result"
    with pytest.raises(RuntimeError, match=r"tm_test.double.*no autograd formula"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match=r"tm_test\.double"):
        (ops.double(x) + 2 * x).sum().backward()


def test_no_gradient_where_none_is_wanted() -> None:
    x = torch.tensor([1.0], requires_grad=True)
    with torch.no_grad():
        assert not ops.mul(x, x).requires_grad
    with torch.inference_mode():
        assert ops.mul(x, x).is_inference()
    assert not ops.mul(x.detach(), x.detach()).requires_grad


def test_a_formula_for_an_operator_that_writes_is_refused() -> None:
    with pytest.raises(torch_mojo.errors.SignatureError, match="plus_one_"):
        ops.plus_one_.register_autograd(lambda ctx: None)


@pytest.mark.parametrize("compiled", [False, True])
def test_vmap(compiled: bool) -> None:
    def run(f: object, *args: torch.Tensor) -> torch.Tensor:
        return (torch.compile(f, fullgraph=True) if compiled else f)(*args)  # type: ignore[operator, call-overload]

    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = torch.tensor([10.0, 20.0, 30.0])
    assert run(torch.vmap(ops.mul, (0, None)), x, y).tolist() == [[10, 40, 90], [40, 100, 180]]
    y = torch.tensor([10.0, 20.0])
    assert run(torch.vmap(ops.mul, (1, None)), x, y).tolist() == [[10, 80], [20, 100], [30, 120]]


def test_autocast() -> None:
    x, index = torch.tensor([1.0, 2.0]), torch.tensor([1, 0])
    with torch.autocast("cpu", torch.bfloat16):
        y = ops.take(x, index)
        assert y.dtype == torch.bfloat16 and y.tolist() == [2.0, 1.0]
        assert ops.take(x.double(), index).dtype == torch.float64
    assert ops.take(x, index).dtype == torch.float32
    assert index.dtype == torch.int64
