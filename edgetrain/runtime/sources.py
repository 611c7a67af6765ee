"""The C runtime's files, as they are shipped in the package."""

from __future__ import annotations

from importlib.resources import files

RUNTIME_SOURCES = ("arena.c", "bounds.c", "threads.c", "pager.c", "page_file.c", "sealed_pages.c", "profile.c")
DEVICE_SOURCES = ("opencl.c", "device.h")  # of programs for a GPU
RUNTIME_HEADERS = ("edgetrain.h", "internal.h")
MOST_THREADS = 64  # of a program: EDGE_MAX_THREADS of the header
PAGE_CIPHER = "page_cipher.zig"  # of programs whose pages are encrypted


def runtime_text(name: str) -> str:
    """A file of the C runtime, as it is shipped in the package."""
    return (files("edgetrain.runtime") / name).read_text(encoding="utf-8")
