"""A process of the compiler does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_INIT = 1  # whose child a process becomes when its parent ends


def end_with_parent() -> None:
    """On Linux: the system ends this process when the one that started it ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == _INIT:  # it ended before it could be watched
            sys.exit(1)
