"""Ships the Mojo sources beside the Python package, and what `python -m torch_mojo build --own` has built of them."""

from pathlib import Path

from setuptools import Distribution, setup

KERNELS = Path(__file__).parent / "kernels"
BUILT = sorted(f for f in (KERNELS / "built").glob("*") if f.suffix in (".so", ".json"))


class MaybeBuilt(Distribution):
    """A wheel for one platform if kernels are built, else for all."""

    def has_ext_modules(self) -> bool:
        """Tell setuptools whether there is machine code."""
        return bool(BUILT)


setup(
    distclass=MaybeBuilt,
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if BUILT else {},
    package_data={
        "torch_mojo": ["py.typed"],
        "torch_mojo.kernels": [
            str(f.relative_to(KERNELS)) for f in (*KERNELS.rglob("*.mojo"), *BUILT)
        ],
    },
)
