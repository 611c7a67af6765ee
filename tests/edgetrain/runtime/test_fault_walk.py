"""Whatever the runtime asks the system for may fail, each call of it: the documented code, no leak, no hang, and on."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.references.workshop import Workshop
from edgetrain.runtime.sources import RUNTIME_HEADERS, RUNTIME_SOURCES, runtime_text
from tests.edgetrain.runtime.sanitizers import (
    MEMORY,
    RACES,
    Sanitizer,
    build,
    compile_c,
    run,
    wrapped_functions,
)
from tests.edgetrain.runtime.sessions import NETWORKS, Session, tiny_session

pytestmark = pytest.mark.compile

# What cannot fail where the runtime calls it: it computes, or works on its own locks, signal masks and threads.
NEVER_FAILS = frozenset(
    {
        *("memcpy", "memset", "snprintf", "strerror", "__errno_location", "__sched_cpucount", "clock_gettime"),
        *("sigfillset", "pthread_sigmask", "pthread_attr_destroy", "pthread_join"),
        *("pthread_mutex_lock", "pthread_mutex_unlock"),
        *("pthread_cond_wait", "pthread_cond_signal", "pthread_cond_broadcast"),
    }
)
# Reached in every run with threads; others only where there are cores to spare.
ALWAYS_REACHED = frozenset(
    {
        *("open", "mkostemp", "unlink", "fallocate", "ftruncate", "fcntl", "pwrite", "pread", "close"),
        *("nanosleep", "sysconf", "sched_getaffinity"),
        *("pthread_attr_init", "pthread_attr_setstacksize", "pthread_create"),
    }
)


def _walk(session: Session, sanitizer: Sanitizer, folder: Path, *options: str, threads: int = 3) -> Counter[str]:
    """How many points were walked, by function, after training to the engine's bits where nothing failed."""
    session.lay_out(folder / "program")
    wraps = [f"-Wl,--wrap={name}" for name in wrapped_functions()]
    sources = ("walk.c", "session.c", "faults.c")
    application = build(folder / "program", session.program, sanitizer, sources, options=(*options, *wraps))
    points: Counter[str] = Counter()
    for line in run(application, sanitizer, str(threads)).splitlines():
        function, _answer, _how_long, count = line.split()
        points[function] += int(count)
    assert (folder / "program" / "trained.bin").read_bytes() == session.trained_by_engine(folder)
    return points


@pytest.mark.parametrize(
    ("plan", "sanitizer", "threads"),
    [
        ("page", MEMORY, 3),
        ("page unaligned", MEMORY, 2),  # where there are two cores, the runtime then keeps a worker off one
        ("store", MEMORY, 1),
        ("store", RACES, 3),
    ],
    ids=lambda value: value.name if isinstance(value, Sanitizer) else str(value),
)
def test_a_call_to_the_system_that_fails_is_told_and_nothing_is_lost(
    plan: str, sanitizer: Sanitizer, threads: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points = _walk(tiny_session(plan), sanitizer, tmp_path, threads=threads)
    record_property("fault_points", points.total())
    for function in ALWAYS_REACHED - ({"pthread_attr_setstacksize"} if threads == 1 else set()):
        assert points[function] > 0, function


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_survives_the_same(
    name: str, workshop: Workshop, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points = _walk(NETWORKS[name](workshop), MEMORY, tmp_path)
    record_property("fault_points", points.total())
    assert points["pread"] > 10


def test_a_runtime_without_threads_survives_the_same(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points = _walk(tiny_session("store"), MEMORY, tmp_path, "-DEDGE_NO_THREADS")
    record_property("fault_points", points.total())
    assert points["pread"] > 0
    assert points["pthread_create"] == 0


def test_all_that_the_runtime_asks_the_system_for_is_walked(tmp_path: Path) -> None:
    for name in (*RUNTIME_SOURCES, *RUNTIME_HEADERS):
        (tmp_path / name).write_text(runtime_text(name), encoding="utf-8")
    compile_c(["-std=c11", "-O2", "-DEDGE_PROFILE", "-c", *RUNTIME_SOURCES], tmp_path)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    listed = subprocess.run(["nm", "--undefined-only", *objects], capture_output=True, text=True, check=True).stdout
    called = {line.split()[-1] for line in listed.splitlines() if " U " in line}
    asked = {name for name in called if not name.startswith(("edge_", "_GLOBAL_OFFSET_TABLE_", "__stack_chk"))}
    assert asked - NEVER_FAILS == set(wrapped_functions()) - {"pthread_join"}, (
        "a new call: add it to faults.h and walk.c"
    )
