"""One function for torch tensors, MAX graph values and MAX tensors; registered on first use."""

import subprocess
import sys
import threading

import pytest
import torch

from torch_mojo import functional as F
from torch_mojo.errors import SignatureError, UnsupportedOpError
from torch_mojo.functional import builtin


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_nothing_is_registered_before_it_is_used() -> None:
    out = run(
        "import sys, torch, torch_mojo\n"
        "from torch_mojo.op import declared\n"
        "assert 'torch_mojo.functional' not in sys.modules\n"
        "from torch_mojo import functional as F\n"
        "assert not declared()\n"
        "print(torch.ops.mojo.ceil.default._schema, *declared())\n"
        "assert not hasattr(torch.ops.mojo, 'no_such_operator')\n"
    )
    assert out.split() == ["mojo::ceil(Tensor", "input)", "->", "Tensor", "mojo::ceil"]


def test_threads_register_once() -> None:
    out = run(
        "import threading, torch, torch_mojo\n"
        "from torch_mojo import functional as F\n"
        "found, start = [], threading.Barrier(8)\n"
        "def use(i):\n"
        "    start.wait()\n"
        "    x = torch.full((i + 1,), 0.5)\n"
        "    found.append((F.ceil(x) if i % 2 else torch.ops.mojo.ceil(x)).tolist() == [1.0] * (i + 1))\n"
        "threads = [threading.Thread(target=use, args=(i,)) for i in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(found)\n"
    )
    assert out.strip() == str([True] * 8)


def test_every_public_function_is_documented_and_an_operator() -> None:
    for name in F.__all__:
        function = getattr(F, name)
        assert function.__doc__ and len(function.__doc__.splitlines()) > 2, name
        assert hasattr(torch.ops.mojo, name), name
    public = {n for n in builtin.functions() if not n.startswith("_")}
    assert all(hasattr(torch.ops.mojo, n) for n in public)


def test_a_users_own_operator_in_the_same_namespace() -> None:
    out = run(
        "import torch, torch_mojo\n"
        "@torch_mojo.mojo_op('mojo::ceil', source='''\n"
        "import extensibility\n"
        "from extensibility import InputTensor, OutputTensor\n"
        "@extensibility.register('ceil')\n"
        "struct Mine:\n"
        "    @staticmethod\n"
        "    def execute(output: OutputTensor[dtype=DType.float32, rank=1, ...],\n"
        "                x: InputTensor[dtype=DType.float32, rank=1, ...]) raises:\n"
        "        for i in range(x.dim_size(0)):\n"
        "            output[i] = 7\n"
        "''')\n"
        "def mine(x: torch.Tensor) -> torch.Tensor:\n"
        "    return torch.empty_like(x)\n"
        "print(torch.ops.mojo.ceil(torch.ones(2)).tolist())\n"
    )
    assert out.strip() == "[7.0, 7.0]"


def test_a_max_tensor_comes_back_as_one() -> None:
    from max.experimental.tensor import Tensor

    x = torch.tensor([[0.5, -0.5], [1.5, 2.0]])
    y = F.ceil(Tensor.from_dlpack(x))
    assert isinstance(y, Tensor)
    assert torch.equal(torch.from_dlpack(y), x.ceil())


def test_kinds_do_not_mix() -> None:
    from max.experimental.tensor import Tensor

    x = torch.ones(2)
    with pytest.raises(SignatureError, match="torch tensor and a MAX value"):
        F.bitwise_and(Tensor.from_dlpack(x.int()), x.int())


@pytest.fixture(scope="module")
def model() -> object:
    """One graph of functions on values with static, symbolic and computed dimensions."""
    from max.dtype import DType
    from max.engine import InferenceSession
    from max.graph import DeviceRef, Graph, TensorType, ops

    cpu = DeviceRef.CPU()
    types = [
        TensorType(DType.float32, ["n", 4], cpu),
        TensorType(DType.int32, ["n", 4], cpu),
        TensorType(DType.int32, [4], cpu),
    ]
    with Graph("values", input_types=types) as graph:
        x, i, j = (v.tensor for v in graph.inputs)
        both = ops.concat([x, x])  # a computed dimension
        fused = F.ceil(x * 2.0) + 1.0
        graph.output(fused, F.ceil(both), F.bitwise_and(i, j), F.bitwise_xor(i, 5))
    return InferenceSession().load(graph)


def test_values_of_a_graph(model: object) -> None:
    from max.driver import Buffer

    for n in (1, 3):
        x = torch.randn(n, 4)
        i, j = (torch.randint(-9, 9, s, dtype=torch.int32) for s in ((n, 4), (4,)))
        results = model.execute(*(Buffer.from_dlpack(t) for t in (x, i, j)))  # type: ignore[attr-defined]
        found = [torch.from_dlpack(r) for r in results]
        wanted = [(x * 2).ceil() + 1, torch.cat([x, x]).ceil(), i & j, i ^ 5]
        assert all(torch.equal(f, w) for f, w in zip(found, wanted, strict=True))


def test_a_pointwise_kernel_fuses_with_its_neighbours(model: object) -> None:
    kernels = [k for k in model.kernel_summaries if "custom__ceil" in k]  # type: ignore[attr-defined]
    assert any("mo.mul" in k and "mo.add" in k for k in kernels), kernels


def test_what_max_cannot_run_is_named() -> None:
    from max.dtype import DType
    from max.graph import DeviceRef, Graph, TensorType

    from torch_mojo.compiler import inline

    with Graph("refused", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as graph:
        x = graph.inputs[0].tensor
        with pytest.raises(UnsupportedOpError, match=r"aten\.special_airy_ai"):
            inline.call(lambda t: torch.special.airy_ai(t), (x,), {})
        with pytest.raises(UnsupportedOpError, match="dimension n"):
            inline.call(lambda t: t.new_ones(int(t.shape[0])), (x,), {})
        graph.output(x)


def test_functions_are_called_from_several_threads_in_eager_torch() -> None:
    found = []

    def use(value: float) -> None:
        found.append(F.ceil(torch.full((100,), value)).sum().item())

    threads = [threading.Thread(target=use, args=(v + 0.5,)) for v in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [100.0, 200.0, 300.0, 400.0]


def test_dynamo_and_export_see_the_operator() -> None:
    out = run(
        "import torch, torch_mojo\n"
        "from torch_mojo import functional as F\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return F.ceil(x * 2) + 1\n"
        "x = torch.randn(3)\n"
        "f = torch.compile(M(), backend='eager', fullgraph=True)\n"
        "print(torch.equal(f(x), (x * 2).ceil() + 1))\n"
        "print([str(n.target) for n in torch.export.export(M(), (x,)).graph.nodes if 'ceil' in n.name])\n"
        "print(torch.fx.symbolic_trace(torch.export.export(M(), (x,)).module())(x).shape)\n"
    )
    assert out.split("\n")[:2] == ["True", "['mojo.ceil.default']"]
