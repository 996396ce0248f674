"""`python -m torch_mojo`."""

import sys

from torch_mojo.cli import main

if __name__ == "__main__":
    sys.exit(main())
