"""Uses `many` and asserts that all is right; run by tests in environments of different kinds."""

import sys

import torch
from many import double_, plus, positive, shifted

kind = sys.argv[1]
assert type(shifted).__name__ == kind, type(shifted)

x, b = torch.arange(6.0), torch.arange(6.0) / 4
same = torch.testing.assert_close
same(shifted(x), x)
same(shifted(x, by=3), x + 3)
same(shifted(x, b, 3, True), -(x + 3 + b))
same(shifted(x, times=2, steps=[1, 2, 3]), 2 * x + 6)
same(shifted(x[::2], b[::2], 1), x[::2] + 1 + b[::2])
same(shifted(torch.tensor([2.0]).expand(4), by=1), torch.full((4,), 3.0))
same(shifted(x.bfloat16(), by=1), (x + 1).bfloat16())
same(shifted(torch.empty(0)), torch.empty(0))
try:
    shifted(x, by=-1)
except RuntimeError as e:
    assert str(e) == "[ship_many::shifted] by is negative: -1", e
else:
    raise AssertionError

version = x._version
y = x.clone()
double_(y)
same(y, 2 * x)
assert y._version == 1 and x._version == version
view = y[::2]
double_(view)
same(y, torch.where(torch.arange(6) % 2 == 0, 4 * x, 2 * x))
try:
    double_(torch.zeros(1).expand(3))
except RuntimeError as e:
    assert "was not built for x: float32[1] expanded" in str(e), e
else:
    raise AssertionError

same(positive(torch.tensor([-1.0, 2.0, 0.0, 3.0])), torch.tensor([2.0, 3.0]))

for shapes in (((3,), (3,)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((3, 4), (1, 1)), ((0, 4), (4,))):
    p, q = (torch.randn(s) for s in shapes)
    same(plus(p, q), p + q)
p, q = torch.randn(5, 4).t(), torch.randn(4, 10)[:, ::2]
same(plus(p, q), p + q)
same(plus(torch.tensor(2.0), torch.ones(2, 2)), torch.full((2, 2), 3.0))

same(torch.ops.ship_many.plus(p, q), p + q)
leaf = torch.ones(3, requires_grad=True)
try:
    plus(leaf, leaf).sum().backward()
except RuntimeError as e:
    assert "ship_many.plus" in str(e), e
else:
    raise AssertionError
print("done")
