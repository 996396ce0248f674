"""Ships the Mojo sources beside the Python package; pyproject.toml has the rest."""

from pathlib import Path

from setuptools import setup

KERNELS = Path(__file__).parent / "kernels"

setup(
    package_data={
        "torch_mojo": ["py.typed"],
        "torch_mojo.kernels": [str(f.relative_to(KERNELS)) for f in KERNELS.rglob("*.mojo")],
    }
)
