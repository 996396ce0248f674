"""Export a model that uses the operator and compile it with AOTInductor: python export_model.py model.pt2."""

import sys

import torch

from ship_an_op import scale_add


class Model(torch.nn.Module):
    """relu(sin(x) + 2 * y)."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return a tensor like x, for two tensors of one shape."""
        return torch.relu(scale_add(torch.sin(x), y, 2.0))


rows = torch.export.Dim("rows", min=2)
program = torch.export.export(
    Model(), (torch.randn(4, 5), torch.randn(4, 5)), dynamic_shapes=({0: rows}, {0: rows})
)
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
