"""Threads that race for one build, forked and spawned workers."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import ops
import pytest
import torch

import torch_mojo


def test_eight_threads_share_one_build() -> None:
    @torch_mojo.mojo_op("tm_threads::mul", source=ops.POINTWISE, kernel="mul")
    def mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    mul.register_autograd(
        lambda ctx, grad: (mul(grad, ctx.saved_tensors[1]), mul(grad, ctx.saved_tensors[0])),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    barrier = threading.Barrier(8)
    wrong: list[object] = []

    def work(i: int) -> None:
        try:
            x = torch.full((i + 1,), float(i + 1))
            barrier.wait()
            for _ in range(100):
                if mul(x, x).tolist() != [(i + 1.0) ** 2] * (i + 1):
                    wrong.append(i)
            leaf = x.clone().requires_grad_()
            mul(leaf, leaf).backward(torch.ones_like(leaf))
            if leaf.grad is None or leaf.grad.tolist() != [2 * (i + 1.0)] * (i + 1):
                wrong.append(("gradient", i, leaf.grad))
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive()
    assert not wrong
    assert mul.specializations == ["tm_threads::mul(x: float32[1], y: float32[1])"]


PROGRAM = """
    import os, sys
    sys.path.insert(0, {tests!r})
    import torch, ops

    class Doubled(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return ops.double(torch.full(({n},), float(i)))

    if __name__ == "__main__":
        ops.double(torch.ones({n}))
        for context in {contexts}:
            loader = torch.utils.data.DataLoader(
                Doubled(), batch_size=2, num_workers=2, multiprocessing_context=context, timeout=120
            )
            for k, batch in enumerate(loader):
                wanted = torch.tensor([[4.0 * k], [4.0 * k + 2]]).expand(2, {n})
                assert torch.equal(batch, wanted), (context, k)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("right")
"""


@pytest.mark.parametrize(("n", "contexts"), [(4, ["fork", "spawn"]), (1_000_000, ["fork"])])
def test_workers(n: int, contexts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    tests = str(Path(__file__).parent)
    file.write_text(textwrap.dedent(PROGRAM).format(tests=tests, n=n, contexts=contexts))
    result = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=400, check=False
    )
    assert result.stdout == "right\n", result.stdout + result.stderr


def test_a_parallel_loop_obeys_the_number_of_threads() -> None:
    from torch_mojo.dispatch.router import router

    level = getattr(router()._library, "__wrap_KGEN_CompilerRT_AsyncRT_ParallelismLevel")
    before = torch.get_num_threads()
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            assert level() == n
            x = torch.arange(300_000.0)
            assert torch.equal(ops.double(x), 2 * x)
    finally:
        torch.set_num_threads(before)
