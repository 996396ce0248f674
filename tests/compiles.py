"""A count of MAX compiles, which the fixture `compiles` makes."""


class Compiles:
    """The MAX graphs compiled so far in a test; `nodes` has the size of each."""

    def __init__(self) -> None:
        """Start at none."""
        self.nodes: list[int] = []

    def __len__(self) -> int:
        """Return how many."""
        return len(self.nodes)
