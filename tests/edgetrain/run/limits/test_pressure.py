"""A system that runs short of memory: told by hand, read from files, and read from this one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.free_memory import MemoryReading, read_memory
from edgetrain.run.limits.ladder import Ladder, Rung
from edgetrain.run.limits.pressure import PressureLimit, PressureSettings

MB = 10**6
TOTAL = 1000 * MB  # so the reserve is 50 MB
SETTINGS = PressureSettings(least_reserve_bytes=1, calm_s=30.0, period_s=1.0)
LADDER = Ladder.of(
    Rung(planned_peak_bytes=size * MB, planned_seconds=1 / size, program=Path(f"/{size}")) for size in (100, 200, 300)
)


class System:
    """Readings and a clock that the test moves. `step` is what the governor does after a step."""

    def __init__(self, *, available: int = 500 * MB, rung: Rung = LADDER.rungs[-1]) -> None:
        self.available, self.stalled = available, 0.0
        self.now, self.reads = 0.0, 0
        self.rung = rung
        self.limit = PressureLimit(self.read, SETTINGS, lambda: self.now)

    def read(self) -> MemoryReading | None:
        self.reads += 1
        return MemoryReading(available_bytes=self.available, total_bytes=TOTAL, stalled_share=self.stalled)

    def step(self, *, after_s: float = 1.0) -> int:
        """The memory of the plan that runs, in MB."""
        self.now += after_s
        best = LADDER.best_within(self.limit.allowance(LADDER, self.rung)) or LADDER.lowest
        self.available -= best.planned_peak_bytes - self.rung.planned_peak_bytes
        self.rung = best
        return best.planned_peak_bytes // MB


def test_enough_memory_is_no_limit() -> None:
    system = System()
    assert [system.step() for _ in range(100)] == [300] * 100


@pytest.mark.parametrize(("missing", "goes_to"), [(1, 200), (100, 200), (101, 100), (500, 100)])
def test_a_shortage_goes_as_far_down_as_it_takes(missing: int, goes_to: int) -> None:
    system = System(available=(50 - missing) * MB)
    assert system.step() == goes_to


def test_tasks_that_wait_for_memory_are_a_shortage_too() -> None:
    system = System()
    system.stalled = 0.11
    assert [system.step(), system.step(), system.step()] == [200, 100, 100]


def test_it_goes_up_a_rung_at_a_time_after_a_calm_while() -> None:
    system = System(available=20 * MB)
    system.stalled = 0.5
    assert [system.step() for _ in range(3)] == [200, 100, 100]
    system.available, system.stalled = 600 * MB, 0.0
    sizes = [system.step() for _ in range(100)]
    assert sizes == sorted(sizes)
    assert sizes.index(200) == 30
    assert sizes.index(300) == 60
    assert system.limit.allowance(LADDER, system.rung) is None, "the shortage is over"
    assert [system.step() for _ in range(100)] == [300] * 100


def test_a_break_in_the_calm_starts_it_again() -> None:
    system = System(available=0)
    system.step()
    system.available = 600 * MB
    assert system.step(after_s=25) == 200
    system.available = 60 * MB  # enough to stay, too little to grow
    assert system.step(after_s=3) == 200
    system.available = 600 * MB
    assert [system.step(after_s=10) for _ in range(4)] == [200, 200, 200, 300]


def test_it_does_not_go_up_where_that_would_be_short_again() -> None:
    system = System(available=0)
    system.step()
    system.available = 174 * MB  # after 100 MB more, less than one and a half times the reserve is left
    assert {system.step() for _ in range(200)} == {200}


@given(st.lists(st.tuples(st.integers(-200, 200), st.floats(0, 0.2)), max_size=60))
def test_it_never_swings_up_and_down_without_a_change_from_outside(changes: list[tuple[int, float]]) -> None:
    system = System()
    for megabytes, stalled in changes:
        system.available = max(0, system.available + megabytes * MB)
        system.stalled = stalled
        system.step()
    system.stalled = 0.0
    sizes = [system.step() for _ in range(300)]
    turns = [later - earlier for earlier, later in itertools.pairwise(sizes) if later != earlier]
    assert turns == sorted(turns), "up, and then down again"


def test_the_files_are_read_at_most_once_a_period() -> None:
    system = System()
    for _ in range(100):
        system.step(after_s=0.1)
    assert system.reads <= 11


def test_a_system_that_does_not_say_is_no_limit(tmp_path: Path) -> None:
    assert read_memory(tmp_path, tmp_path) is None
    limit = PressureLimit(lambda: read_memory(tmp_path, tmp_path))
    assert limit.allowance(LADDER, LADDER.lowest) is None


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


MEMINFO = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n"
STALLED = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10=90.00 avg60=0.00 avg300=0.00 total=1\n"


def test_the_tightest_of_all_groups_and_the_machine_counts(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/outer/inner\n",
        "proc/pressure/memory": STALLED.format("1.50"),
        "groups/outer/memory.max": "500000\n",
        "groups/outer/memory.high": "max\n",
        "groups/outer/memory.current": "300000\n",
        "groups/outer/memory.stat": "anon 1\ninactive_file 50000\n",
        "groups/outer/inner/memory.max": "max\n",
        "groups/outer/inner/memory.current": "300000\n",
        "groups/outer/inner/memory.pressure": STALLED.format("20.00"),
    }
    write(tmp_path, files)
    reading = read_memory(tmp_path / "proc", tmp_path / "groups")
    assert reading == MemoryReading(available_bytes=250_000, total_bytes=500_000, stalled_share=0.2)
    write(tmp_path, {"groups/outer/memory.high": "260000\n"})
    reading = read_memory(tmp_path / "proc", tmp_path / "groups")
    assert reading is not None
    assert reading.available_bytes == 10_000


def test_the_first_version_of_control_groups_is_read_as_well(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:cpu,memory:/box\n1:pids:/\n0::/\n",
        "groups/memory/box/memory.limit_in_bytes": "200000\n",
        "groups/memory/box/memory.usage_in_bytes": "150000\n",
        "groups/memory/box/memory.stat": "total_inactive_file 10000\n",
    }
    write(tmp_path, files)
    reading = read_memory(tmp_path / "proc", tmp_path / "groups")
    assert reading == MemoryReading(available_bytes=60_000, total_bytes=200_000, stalled_share=0.0)


def test_a_group_whose_folder_is_not_here_leaves_the_machine(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/of/the/host\n"})
    reading = read_memory(tmp_path / "proc", tmp_path / "groups")
    assert reading == MemoryReading(available_bytes=614_400, total_bytes=1_024_000, stalled_share=0.0)


def test_this_machine_says_something_sensible() -> None:
    reading = read_memory()
    assert reading is not None
    assert 0 < reading.available_bytes <= reading.total_bytes
    assert 0 <= reading.stalled_share <= 1
