"""What is known not to be right, and why. A test fails when one of these starts to pass."""

GAPS: dict[tuple[str, str], str] = {}
"""From (dtype and kind, as in the results' file names; the database's operator) to the reason."""
