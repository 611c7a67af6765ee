"""The C runtime, called from C and through ctypes: launches, paging, and what it refuses."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgetrain.program.emit_c import emit_driver
from edgetrain.program.library import build_library
from edgetrain.runtime.sources import RUNTIME_SOURCES, runtime_text
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    COUNT,
    KERNELS,
    STEP_PLANS,
    compile_object,
    host_compiler,
    initial_values,
    reference_step,
    some_input,
    tiny_graph,
    tiny_plan,
)

ERROR_ARGUMENT, ERROR_STATE, ERROR_PAGE_FILE, ERROR_PAGE_IO = -1, -2, -4, -6
MAXIMUM_THREADS = 64
PAGED_BYTES = 4 * COUNT  # the one slot of the program


class Record(ctypes.Structure):
    _fields_ = (
        ("runs", ctypes.c_int32 * 256),
        ("num_task", ctypes.c_int32 * 256),
        ("inner_runs", ctypes.c_int32 * 256),
        ("failing_task", ctypes.c_int32),
    )


def new_record(*, failing_task: int = -1) -> Record:
    return Record(failing_task=failing_task)


@pytest.fixture(scope="module", params=[False, True], ids=["plain pages", "encrypted pages"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The paging program with the probe among its kernels."""
    is_encrypted = bool(request.param)
    directory = tmp_path_factory.mktemp("runtime")
    source = directory / "kernels.c"
    probe = Path(__file__).with_name("launch_probe.c").read_text()
    source.write_text(KERNELS.read_text() + _without_declarations(probe))  # kernels come in one object
    kernels = compile_object(host_compiler(), source, directory / "kernels.o")
    driver = emit_driver(tiny_graph(), tiny_plan(STEP_PLANS["page"]), encrypts_pages=is_encrypted)
    path = build_library(
        driver_c=driver, kernels=kernels, out=directory, compiler=host_compiler(), encrypts_pages=is_encrypted
    )
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


@contextmanager
def throttled(library: ctypes.CDLL, bytes_per_second: int) -> Iterator[None]:
    library.edge_page_throttle(bytes_per_second)
    try:
        yield
    finally:
        library.edge_page_throttle(0)


def _open_files() -> set[int]:
    # The listing's own descriptor is among them, and closed by now.
    return {int(path.name) for path in Path("/proc/self/fd").iterdir() if path.exists()}


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


def _cores_of_new_threads(before: set[str]) -> list[set[int]]:
    return [os.sched_getaffinity(int(thread)) for thread in sorted(_threads() - before)]


def test_workers_that_wake_leave_a_core_to_the_launcher(library: ctypes.CDLL, tmp_path: Path) -> None:
    before, allowed = _threads(), os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two cores")
    with opened(library, tmp_path, threads=2):
        time.sleep(0.2)  # the worker falls asleep
        library.edge_test_launch(ctypes.byref(new_record()), 0)
        found = _cores_of_new_threads(before)
    assert sorted(len(cores) for cores in found) == [len(allowed) - 1, len(allowed)], "a worker, and what pages"
    assert all(cores <= allowed for cores in found)


def test_more_threads_than_cores_may_run_anywhere(library: ctypes.CDLL, tmp_path: Path) -> None:
    before, allowed = _threads(), os.sched_getaffinity(0)
    if len(allowed) >= MAXIMUM_THREADS:
        pytest.skip(f"needs fewer than {MAXIMUM_THREADS} cores")
    with opened(library, tmp_path, threads=len(allowed) + 1):
        time.sleep(0.2)
        library.edge_test_launch(ctypes.byref(new_record()), 0)
        assert all(cores == allowed for cores in _cores_of_new_threads(before))


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
        with throttled(library, 200_000):
            assert library.edge_step() == 0
        loss, weights = reference_step(initial_values()["w"].astype(np.float32), some_input())
        assert everything[18112 // 4] == loss
        assert everything[:COUNT].tobytes() == weights.tobytes()
        del everything


@pytest.mark.parametrize("offset", [0, 64, 4096, 4100])
def test_what_is_paged_out_comes_back_and_nothing_beside_it_changes(
    library: ctypes.CDLL, tmp_path: Path, offset: int
) -> None:
    content = np.random.default_rng(offset).bytes(PAGED_BYTES)
    with opened(library, tmp_path, threads=1) as arena:
        arena[offset : offset + PAGED_BYTES] = content
        assert library.edge_page_start_write(0, address(arena) + offset) == 0
        assert library.edge_page_wait(0) == 0
        arena[:] = bytes([7]) * ARENA_BYTES
        assert library.edge_page_start_read(0, address(arena) + 3 * offset) == 0
        assert library.edge_page_wait(0) == 0
        expected = bytearray([7]) * ARENA_BYTES
        expected[3 * offset : 3 * offset + PAGED_BYTES] = content
        assert arena[:] == bytes(expected)


def test_more_transfers_than_the_queue_holds_all_arrive(library: ctypes.CDLL, tmp_path: Path) -> None:
    count = 150
    with opened(library, tmp_path, threads=1) as arena, throttled(library, 3_000_000):
        arena[:PAGED_BYTES] = bytes([7]) * PAGED_BYTES
        assert library.edge_page_start_write(0, address(arena)) == 0
        for number in range(count):  # each is the only one to reach its first 64 bytes
            assert library.edge_page_start_read(0, address(arena) + 8192 + 64 * number) == 0
        assert library.edge_page_drain() == 0
        end = 8192 + 64 * (count - 1) + PAGED_BYTES
        assert arena[8192:end] == bytes([7]) * (end - 8192)
        assert arena[end] == 0


def test_transfers_pass_the_page_cache_by_where_the_filesystem_allows(library: ctypes.CDLL, tmp_path: Path) -> None:
    before = _open_files()
    with opened(library, tmp_path, threads=1) as arena:
        (file,) = _open_files() - before
        if not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            pytest.skip("no O_DIRECT here")
        for offset in (0, 64):  # the second is not aligned and must go through the buffer
            assert library.edge_page_start_write(0, address(arena) + offset) == 0
            assert library.edge_page_start_read(0, address(arena) + offset) == 0
        assert library.edge_page_drain() == 0
        assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT


def test_a_page_file_that_was_cut_short_is_an_error_and_not_a_tensor_of_zeros(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    before = _open_files()
    with opened(library, tmp_path, threads=1) as arena:
        (file,) = _open_files() - before
        assert library.edge_page_start_write(0, address(arena)) == 0
        assert library.edge_page_wait(0) == 0
        os.ftruncate(file, 4096)
        library.edge_page_start_read(0, address(arena))
        assert library.edge_page_wait(0) == ERROR_PAGE_IO
        assert b"ended before the tensor did" in library.edge_error()


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
