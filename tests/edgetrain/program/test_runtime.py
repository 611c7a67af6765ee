"""The C runtime, called from C and through ctypes: launches, paging, and what it refuses."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgetrain.program.emit_c import emit_driver
from edgetrain.program.toolchain import RUNTIME_SOURCES, build_library, runtime_text
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    COUNT,
    KERNELS,
    SCHEDULES,
    compile_object,
    host_compiler,
    initial_values,
    reference_step,
    some_input,
    tiny_graph,
    tiny_plan,
)

ERROR_ARGUMENT, ERROR_STATE, ERROR_PAGE_FILE = -1, -2, -4


class Record(ctypes.Structure):
    _fields_ = (
        ("runs", ctypes.c_int32 * 256),
        ("num_task", ctypes.c_int32 * 256),
        ("inner_runs", ctypes.c_int32 * 256),
        ("failing_task", ctypes.c_int32),
    )


def new_record(*, failing_task: int = -1) -> Record:
    return Record(failing_task=failing_task)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The paging program with the probe among its kernels."""
    directory = tmp_path_factory.mktemp("runtime")
    source = directory / "kernels.c"
    probe = Path(__file__).with_name("launch_probe.c").read_text()
    source.write_text(KERNELS.read_text() + _without_declarations(probe))  # kernels come in one object
    kernels = compile_object(host_compiler(), source, directory / "kernels.o")
    driver = emit_driver(tiny_graph(), tiny_plan(SCHEDULES["page"]))
    path = build_library(driver_c=driver, kernels_object=kernels, out=directory, compiler=host_compiler())
    loaded = ctypes.CDLL(str(path))
    loaded.edge_open.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p)
    loaded.edge_error.restype = ctypes.c_char_p
    loaded.edge_page_throttle.argtypes = (ctypes.c_uint64,)
    loaded.edge_page_start_write.argtypes = (ctypes.c_uint32, ctypes.c_void_p)
    loaded.edge_page_start_read.argtypes = (ctypes.c_uint32, ctypes.c_void_p)
    return loaded


def _without_declarations(probe: str) -> str:
    """The probe after its declarations, which the kernels' file has already."""
    return probe[probe.index("typedef struct {\n  int32_t runs") :]


@contextmanager
def opened(library: ctypes.CDLL, directory: Path, *, threads: int) -> Iterator[mmap.mmap]:
    arena = mmap.mmap(-1, ARENA_BYTES)
    assert library.edge_open(address(arena), ARENA_BYTES, threads, bytes(directory)) == 0, library.edge_error()
    try:
        yield arena
    finally:
        library.edge_close()


def _threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}


def address(arena: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(arena))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_launch_runs_one_task_a_thread(library: ctypes.CDLL, tmp_path: Path, threads: int) -> None:
    seen = new_record()
    with opened(library, tmp_path, threads=threads):
        assert library.edge_test_launch(ctypes.byref(seen), 0) == 0
    assert list(seen.runs) == [1] * threads + [0] * (256 - threads)
    assert list(seen.num_task)[:threads] == [threads] * threads


@pytest.mark.parametrize("tasks", [1, 3, 100])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_kernel_that_asks_for_a_number_of_tasks_gets_it(
    library: ctypes.CDLL, tmp_path: Path, threads: int, tasks: int
) -> None:
    seen = new_record()
    with opened(library, tmp_path, threads=threads):
        assert library.edge_test_launch(ctypes.byref(seen), tasks) == 0
    assert list(seen.runs) == [1] * tasks + [0] * (256 - tasks)
    assert list(seen.num_task)[:tasks] == [tasks] * tasks


@pytest.mark.parametrize("threads", [1, 3])
def test_a_parallel_loop_inside_a_task_runs_whole_and_once(library: ctypes.CDLL, tmp_path: Path, threads: int) -> None:
    seen = new_record()
    with opened(library, tmp_path, threads=threads):
        assert library.edge_test_nested(ctypes.byref(seen), 7) == 0
    assert list(seen.runs)[:8] == [1] * 7 + [0]
    assert list(seen.inner_runs)[:8] == [1] * 7 + [0]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("failing", [0, 2])
def test_a_failing_task_fails_the_launch_and_the_next_one_succeeds(
    library: ctypes.CDLL, tmp_path: Path, threads: int, failing: int
) -> None:
    with opened(library, tmp_path, threads=threads):
        assert library.edge_test_launch(ctypes.byref(new_record(failing_task=failing)), 3) == 9
        assert library.edge_test_launch(ctypes.byref(new_record()), 3) == 0


@pytest.mark.parametrize("threads", [2, 4])  # the second has more threads than cores on a small machine: no spinning
def test_no_launch_is_lost_between_spinning_and_sleeping(library: ctypes.CDLL, tmp_path: Path, threads: int) -> None:
    seen = new_record()
    with opened(library, tmp_path, threads=threads):
        assert library.edge_test_many(ctypes.byref(seen), 2000) == 0
    assert list(seen.runs)[:threads] == [2000] * threads


def test_idle_threads_sleep(library: ctypes.CDLL, tmp_path: Path) -> None:
    ours = _threads()
    with opened(library, tmp_path, threads=3):
        library.edge_test_launch(ctypes.byref(new_record()), 0)
        workers = _threads() - ours
        assert len(workers) == 3  # two for kernels, one for paging
        for _ in range(1000):
            states = [Path(f"/proc/self/task/{w}/stat").read_text().rpartition(")")[2].split()[0] for w in workers]
            if states == ["S"] * 3:
                break
            time.sleep(0.01)
        assert states == ["S"] * 3
    for _ in range(1000):  # a joined thread may stay listed for a moment
        if _threads() <= ours:
            break
        time.sleep(0.01)
    assert _threads() <= ours


def test_a_slow_disk_changes_nothing_but_the_time(library: ctypes.CDLL, tmp_path: Path) -> None:
    """Slow enough that a kernel which does not wait for its page reads something else."""
    with opened(library, tmp_path, threads=1) as arena:
        everything = np.frombuffer(arena, np.float32)
        everything[:COUNT] = initial_values()["w"]
        everything[12032 // 4] = initial_values()["rate"]
        everything[12096 // 4 : 12096 // 4 + COUNT] = some_input().ravel()
        everything[20480 // 4 :] = np.nan
        library.edge_page_throttle(200_000)
        try:
            assert library.edge_step() == 0
        finally:
            library.edge_page_throttle(0)
        loss, weights = reference_step(initial_values()["w"].astype(np.float32), some_input())
        assert everything[18112 // 4] == loss
        assert everything[:COUNT].tobytes() == weights.tobytes()
        del everything


@pytest.mark.parametrize("offset", [0, 64, 4096, 4100])
def test_more_transfers_than_the_queue_holds_all_arrive_in_order(
    library: ctypes.CDLL, tmp_path: Path, offset: int
) -> None:
    nbytes = 4 * COUNT
    with opened(library, tmp_path, threads=1) as arena:
        start = address(arena) + offset
        for value in range(200):
            arena[offset : offset + nbytes] = bytes([value]) * nbytes
            assert library.edge_page_start_write(0, start) == 0
            assert library.edge_page_wait(0) == 0
            assert library.edge_page_start_write(0, start) == 0  # again, and not waited for
        for _ in range(200):
            assert library.edge_page_start_read(0, start + 8192) == 0
        assert library.edge_page_drain() == 0
        assert arena[offset + 8192 : offset + 8192 + nbytes] == bytes([199]) * nbytes
        assert arena[offset + 8192 + nbytes] == 0


def test_opening_twice_or_calling_unopened_is_refused(library: ctypes.CDLL, tmp_path: Path) -> None:
    assert library.edge_step() == ERROR_STATE
    assert b"call edge_open first" in library.edge_error()
    with opened(library, tmp_path, threads=1) as arena:
        assert library.edge_open(address(arena), ARENA_BYTES, 1, bytes(tmp_path)) == ERROR_STATE
    library.edge_close()
    assert library.edge_step() == ERROR_STATE


def test_an_arena_too_small_or_misaligned_is_refused(library: ctypes.CDLL, tmp_path: Path) -> None:
    arena = mmap.mmap(-1, ARENA_BYTES + 4096)
    assert library.edge_open(address(arena), ARENA_BYTES - 1, 1, bytes(tmp_path)) == ERROR_ARGUMENT
    assert b"smaller" in library.edge_error()
    assert library.edge_open(address(arena) + 32, ARENA_BYTES, 1, bytes(tmp_path)) == ERROR_ARGUMENT
    assert b"aligned" in library.edge_error()
    assert library.edge_open(None, ARENA_BYTES, 1, bytes(tmp_path)) == ERROR_ARGUMENT


def test_a_paging_program_without_a_directory_is_refused(library: ctypes.CDLL) -> None:
    arena = mmap.mmap(-1, ARENA_BYTES)
    assert library.edge_open(address(arena), ARENA_BYTES, 3, None) == ERROR_PAGE_FILE
    assert b"NULL" in library.edge_error()


@pytest.mark.parametrize("name", RUNTIME_SOURCES)
def test_the_runtime_never_allocates(name: str) -> None:
    text = runtime_text(name)
    assert not [word for word in ("malloc(", "calloc(", "realloc(", "aligned_alloc(") if word in text]
