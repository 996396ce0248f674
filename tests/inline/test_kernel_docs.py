"""docs/inline_kernels.md: every block of Python on the page, in order."""

import linecache
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "inline_kernels.md"


def test_the_page(device: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 10
    names: dict[str, object] = {"__name__": "page"}
    for i, block in enumerate(blocks):
        file = f"<block {i} of {PAGE.name}>"
        linecache.cache[file] = (len(block), None, block.splitlines(keepends=True), file)
        exec(compile(block, file, "exec"), names)
