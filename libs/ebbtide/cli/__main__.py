"""``python -m ebbtide.cli`` is ``ebb``."""

import sys

from ebbtide.cli import main

if __name__ == "__main__":
    sys.exit(main())
