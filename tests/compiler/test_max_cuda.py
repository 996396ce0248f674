"""MAX graphs over CUDA tensors: values, streams, no waiting, memory, threads."""

import threading

import ops
import pytest
import torch
from torch.nn import functional as F

from torch_mojo.compiler.backend import max_backend

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def compiled(f, **rest):
    torch._dynamo.reset()
    return torch.compile(f, backend=max_backend, options={"fallback": "error"}, **rest)


def long_work() -> torch.cuda.Event:
    """Keep the current stream busy for a while; the event is its end."""
    big = torch.full((8192, 8192), 1e-4, device="cuda")
    for _ in range(6):
        big = big @ big
    done = torch.cuda.Event()
    done.record()
    return done


def affine(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@pytest.fixture(scope="module")
def graph():
    """A graph that is compiled and warm."""
    f = compiled(affine, dynamic=False)
    x = torch.zeros(1 << 20, device="cuda")
    for _ in range(3):
        f(x)
    torch.cuda.synchronize()
    return f


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(32),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(32, 5),
    ).cuda()


def test_a_training_step_has_eagers_values() -> None:
    """Forward, backward, batch norm's buffers, dropout's numbers."""
    x = torch.randn(4, 3, 8, 8, device="cuda")
    found = []
    for compiling in (False, True):
        net = model()
        f = compiled(net) if compiling else net
        for _ in range(3):
            torch.manual_seed(5)
            net.zero_grad()
            loss = f(x).square().mean()
            loss.backward()
        parts = [loss.detach(), *(p.grad for p in net.parameters()), *net.buffers()]
        found.append(parts)
    for got, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attention_and_products(dtype: torch.dtype) -> None:
    def f(q, k, v, w):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (y @ w).softmax(-1), (y * 2).sum((1, 2)), y.amax(-1).argmax(-1)

    q, k, v = (torch.randn(2, 4, 33, 64, device="cuda", dtype=dtype) for _ in range(3))
    w = torch.randn(64, 16, device="cuda", dtype=dtype)
    loose = 1e-4 if dtype == torch.float32 else 2e-2
    got = compiled(f)(q, k, v, w)
    wanted = f(*(t.double() for t in (q, k, v, w)))
    for a, b in zip(got[:2], wanted[:2], strict=True):
        torch.testing.assert_close(a.double(), b, rtol=loose, atol=loose * b.abs().max().item())
    assert got[2].dtype == torch.int64


def test_products_are_full_float32_unless_tf32_is_allowed() -> None:
    a, b = (torch.randn(512, 512, device="cuda") for _ in range(2))
    exact = a.double() @ b.double()
    apart = (compiled(torch.mm)(a, b).double() - exact).abs().max().item()
    assert apart < 5e-4, apart  # TF32 is wrong by 3e-2 here


def test_one_graph_serves_all_sizes(compiles) -> None:
    def f(x):
        return x.cumsum(0) + x.mean(0)

    g = compiled(f, dynamic=True)
    for n in (3, 7, 1000):
        x = torch.randn(n, 5, device="cuda")
        torch.testing.assert_close(g(x), f(x), rtol=1e-4, atol=1e-4)
    assert len(compiles) == 1


def test_a_cache_is_written_in_place() -> None:
    def f(cache, at, x):
        cache.index_copy_(1, at, x)
        return cache.sum(1)

    caches = [torch.zeros(2, 8, 4, device="cuda") for _ in range(2)]
    g = compiled(f)
    for i in range(4):
        x = torch.randn(2, 1, 4, device="cuda")
        at = torch.tensor([i], device="cuda")
        torch.testing.assert_close(g(caches[0], at, x), f(caches[1], at, x))
    assert torch.equal(*caches)


def test_a_mojo_op_is_in_the_graph(compiles) -> None:
    def f(x):
        return ops.double(x.sin()).relu()

    x = torch.randn(100, device="cuda")
    torch.testing.assert_close(compiled(f)(x), f(x))
    assert len(compiles) == 1


@pytest.mark.parametrize("side", [False, True])
def test_the_current_stream_orders_it(graph, side: bool) -> None:
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    for i in range(20):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device="cuda")
            long_work()
            x.fill_(i)
            y = graph(x)
            x.fill_(-1.0)  # after the graph has read it
            del x
            torch.full((1 << 20,), -7.0, device="cuda")
            assert bool((y == 2 * i + 1).all()), i


def test_the_host_does_not_wait(graph) -> None:
    x = torch.ones(1 << 20, device="cuda")
    graph(x)
    torch.cuda.synchronize()
    done = long_work()
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = graph(x)
        still = not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert still, "the call returned after the work before it"
    assert bool((y == 3).all())


def test_threads_with_streams_of_their_own(graph) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            for i in range(30):
                x = torch.full((1 << 20,), float(number * 100 + i), device="cuda")
                if not bool((graph(x) == 2 * (number * 100 + i) + 1).all()):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_memory_is_given_back(graph) -> None:
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(10):
        graph(x)
    torch.cuda.synchronize()
    free, allocated = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    for _ in range(200):
        graph(x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == allocated
    assert free - torch.cuda.mem_get_info()[0] <= 64 << 20


def test_a_number_on_the_cpu_beside_tensors_on_the_gpu() -> None:
    def f(x, s):
        return x * s + s

    x, s = torch.randn(10, device="cuda"), torch.tensor(3.0)
    torch.testing.assert_close(compiled(f)(x, s), f(x, s))
