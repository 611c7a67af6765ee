"""`python -m edgetrain`."""

from __future__ import annotations

import sys

from edgetrain.cli import main

if __name__ == "__main__":
    sys.exit(main())
