"""Uses `pools` and asserts that all is right; run by a test in environments of different kinds."""

import sys

import pools
import torch
from pools import pool, pool_backward

kind = sys.argv[1]
assert type(pool).__name__ == type(pool_backward).__name__ == kind, type(pool)

same = torch.testing.assert_close
for shape in ((8,), (3, 8), (3, 0)):
    x = torch.randn(shape)
    groups = x.unflatten(-1, (-1, 2))
    same(pool(x, 1.0), groups.amax(-1) if x.numel() else x)
    same(pool(x, -2.0, largest=False), -2 * groups.amin(-1) if x.numel() else x)
x = torch.randn(3, 8)
same(pool(x, 0.5, K=4), x.unflatten(-1, (-1, 4)).amax(-1) / 2)
for strided in (torch.randn(8, 3).t(), torch.randn(3, 16)[:, ::2], torch.randn(3, 1).expand(3, 8)):
    same(pool(strided, 1.0), strided.unflatten(-1, (-1, 2)).amax(-1))
same(torch.ops.ship_pools.pool(x, 1.0), pool(x, 1.0))

leaf = torch.tensor([1.0, 5.0, 3.0, 2.0], requires_grad=True)
pool(leaf, 2.0).backward(torch.tensor([1.0, 10.0]))
same(leaf.grad, torch.tensor([0.0, 2.0, 20.0, 0.0]))
same(torch.vmap(lambda v: pool(v, 1.0))(x), pool(x, 1.0))

fake = torch.ops.ship_pools.pool(torch.empty(5, 9, device="meta"), 1.0, K=4)
assert fake.shape == (5, 2), fake.shape
if kind == "ShippedOp":
    refused = (
        (lambda: pool(x, 1.0, K=8), "was not built for x: float32[2], K: 8, largest: 1."),
        (lambda: pool(x.double(), 1.0), "was not built for x: float64[2], K: 2, largest: 1."),
        (lambda: pool_backward(x, x, 1.0), "was not built for grad: float32[2], x: float32[2]."),
        (
            lambda: pool_backward(x[0, :3].contiguous(), x[0], 1.0),
            "[pool_backward] grad has 3 in dimension 0; f32[n // 2] says 4 (n // 2).",
        ),
    )
    for call, text in refused:
        try:
            call()
        except RuntimeError as e:
            assert text in str(e), e
        else:
            raise AssertionError(text)
if "--alone" in sys.argv:
    try:
        pools._pool(x, 1.0)
    except RuntimeError as e:
        assert str(e).startswith("[pool] is built when it is called, and torch_mojo is not inst"), e
    else:
        raise AssertionError
print(
    "done",
    *sorted({b.library.name for b in pool.calls.built.values()}) if kind != "ShippedOp" else "",
)
