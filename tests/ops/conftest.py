"""What runs in the quick suite: float32 in every layout, gradients, opcheck, vmap, errors. The rest is slow."""

import re

import pytest

# other dtypes, builds for another machine: each is a build or more of its own
SLOW = re.compile(r"dtype|autocast|half|halves|gradcheck|differences|gpu|large|float16|float64")


@pytest.hookimpl(tryfirst=True)  # before the marked ones are skipped
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "ops" and SLOW.search(item.name.replace("cuda", "")):
            item.add_marker(pytest.mark.slow)
