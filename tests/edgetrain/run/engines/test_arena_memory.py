"""Memory that grows and shrinks in place, as the system itself counts it."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import DeviceError
from edgetrain.run.engines.arena_memory import ArenaMemory

PAGE = mmap.PAGESIZE
SMALL, LARGE = 3 * PAGE + 100, 40 * PAGE


def is_mapped(address: int) -> bool:
    ranges = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(first, 16) <= address < int(last, 16) for first, last in ranges)


def touch(memory: ArenaMemory) -> None:
    np.frombuffer(memory.view, np.uint8)[...] = 7


def test_growing_and_shrinking_keep_the_contents_and_the_place() -> None:
    memory = ArenaMemory(SMALL, reserve_bytes=LARGE)
    kept = np.frombuffer(memory.view[:100], np.uint8)
    kept[...] = 5
    place = memory.address
    for nbytes in (LARGE, SMALL, LARGE, PAGE, SMALL):
        memory.resize(nbytes)
        assert (len(memory.view), memory.address) == (nbytes, place)
        assert (kept == 5).all()


def test_what_a_smaller_arena_does_not_need_goes_back_to_the_system() -> None:
    memory = ArenaMemory(LARGE)
    touch(memory)
    assert memory.bytes_in_use() == LARGE
    memory.resize(SMALL)
    assert memory.bytes_in_use() == SMALL
    memory.resize(LARGE)
    assert memory.bytes_in_use() == 4 * PAGE, "the pages that were given back came back in use"
    assert not any(memory.view[4 * PAGE :])


def test_giving_back_spares_the_page_that_is_partly_kept() -> None:
    memory = ArenaMemory(LARGE)
    touch(memory)
    memory.give_back(PAGE + 1)
    assert memory.bytes_in_use() == 2 * PAGE
    assert all(byte == 7 for byte in memory.view[: 2 * PAGE])
    assert not any(memory.view[2 * PAGE :])


def test_untouched_memory_is_not_in_use() -> None:
    memory = ArenaMemory(LARGE, reserve_bytes=1 << 30)
    assert memory.bytes_in_use() == 0
    memory.view[PAGE] = 1
    assert memory.bytes_in_use() == PAGE


def test_an_arena_does_not_grow_past_what_was_reserved() -> None:
    memory = ArenaMemory(SMALL, reserve_bytes=LARGE)
    memory.view[0] = 9
    with pytest.raises(DeviceError, match="cannot grow to"):
        memory.resize(LARGE + 1)
    assert (memory.nbytes, memory.view[0]) == (SMALL, 9)


def test_the_memory_goes_with_its_last_view() -> None:
    memory = ArenaMemory(SMALL)
    address, view = memory.address, memory.view
    del memory
    gc.collect()
    assert is_mapped(address)
    view[0] = 1
    del view
    gc.collect()
    assert not is_mapped(address)


_TOUCH = """
import ctypes, sys
from edgetrain.run.engines.arena_memory import ArenaMemory
memory = ArenaMemory({large}, reserve_bytes={large} * 2)
memory.resize({small})
ctypes.memset(memory.address + int(sys.argv[1]), 1, 1)
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(("offset", "killed"), [(-1, True), (0, False), (SMALL - 1, False), (4 * PAGE, True)])
def test_touching_what_was_given_back_ends_the_process(offset: int, killed: bool) -> None:
    done = run_python(_TOUCH.format(large=LARGE, small=SMALL), str(offset))
    assert (done.returncode == -signal.SIGSEGV) == killed, done.stderr


_LIMITED = """
import resource
from edgetrain.errors import DeviceError
from edgetrain.run.engines.arena_memory import ArenaMemory
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
memory = ArenaMemory(1 << 20, reserve_bytes=1 << 32)
memory.view[(1 << 20) - 1] = 1
print(memory.capacity_bytes)
try:
    ArenaMemory(1 << 32)
except DeviceError as error:
    print(error.what)
"""


def test_a_limit_on_addresses_costs_the_reserve_and_not_the_arena() -> None:
    done = run_python(_LIMITED)
    assert done.stdout.splitlines() == [str(1 << 20), "no memory for an arena of 4.295GB"], done.stderr
