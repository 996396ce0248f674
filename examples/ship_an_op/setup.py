"""pip wheel . --no-build-isolation --no-deps: the kernel is built into the wheel."""

import torch
from setuptools import setup

from torch_mojo.build import BuildMojo, Grid, MojoExtension

setup(
    ext_modules=[
        MojoExtension(
            "ship_an_op.ops",
            specializations=Grid(dtypes=[torch.float32], ranks=[0, 1, 2], strided=True),
            targets=["x86-64-v3"],  # and "sm_90", where kernels shall run on a GPU
            bundle_runtime=True,
        )
    ],
    cmdclass={"build_ext": BuildMojo},
)
