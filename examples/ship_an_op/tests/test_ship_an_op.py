"""scale_add against torch."""

import pytest
import torch

from ship_an_op import scale_add


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 2)])
def test_values(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(2, *shape)
    torch.testing.assert_close(scale_add(x, y, 2.5), x + 2.5 * y)


def test_strided() -> None:
    x, y = torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]
    torch.testing.assert_close(scale_add(x, y), x + y)


def test_gradient() -> None:
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    scale_add(x, y, 2.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3, 4))
    torch.testing.assert_close(y.grad, torch.full((3, 4), 2.0))


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="x has shape"):
        scale_add(torch.ones(2), torch.ones(3))


def test_what_torch_expects_of_an_operator() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.library.opcheck(torch.ops.ship_an_op.scale_add.default, (x, y, 0.5))
