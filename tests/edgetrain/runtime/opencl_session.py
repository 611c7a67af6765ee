"""Opens a program for a GPU on the stand-in driver and calls it; prints what came of it. Run in a process of its own.

    python -m tests.edgetrain.runtime.opencl_session LIBRARY ARENA_BYTES

with the stand-in as `libOpenCL.so.1` where the loader looks first.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any


def main(library: str, arena_bytes: int) -> None:
    driver, program = ctypes.CDLL("libOpenCL.so.1"), ctypes.CDLL(library)
    program.edge_error.restype = ctypes.c_char_p
    raw = (ctypes.c_uint8 * (arena_bytes + 64))()
    arena = ctypes.c_void_p((ctypes.addressof(raw) + 63) // 64 * 64)

    def number(name: str, kind: Any = ctypes.c_int32) -> Any:
        return kind.in_dll(driver, name)

    def session(fail_at: int) -> dict[str, Any]:
        """Open, step and close, with that call failing."""
        number("fake_fail_at").value, number("fake_calls").value = fail_at, 0
        opened = program.edge_open(arena, ctypes.c_size_t(arena_bytes), 1, None)
        stepped = program.edge_step() if opened == 0 else None
        words = program.edge_error().decode()
        program.edge_close()
        calls, live = number("fake_calls").value, number("fake_live").value
        return {"opened": opened, "stepped": stepped, "words": words, "calls": calls, "live": live}

    good = session(0)
    failing = [session(fail_at) for fail_at in range(1, good["calls"] + 1)]
    number("fake_status").value = -4
    out_of_memory = [session(fail_at) for fail_at in range(1, good["calls"] + 1)]
    number("fake_alignment_bits").value = 8192
    misaligned = session(0)
    number("fake_alignment_bits").value = 1024
    number("fake_largest", ctypes.c_uint64).value = 1000
    too_large = session(0)
    number("fake_largest", ctypes.c_uint64).value = 1 << 30
    print(
        json.dumps(
            {
                "good": good,
                "failing": failing,
                "out_of_memory": out_of_memory,
                "misaligned": misaligned,
                "too_large": too_large,
                "good_again": session(0),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
