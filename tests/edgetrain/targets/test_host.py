"""Claims about what is read from a machine, on texts of machines we do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.runtime.sources import MOST_THREADS, runtime_text
from edgetrain.targets.host import (
    cache_bytes,
    cgroup_folders,
    core_limit_of,
    flags_of,
    isa_of,
    memory_limit_of,
    read_host,
    total_memory_of,
)

V2 = {"sse4_2", "ssse3", "popcnt", "cx16"}
V3 = V2 | {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("flags", "cpu", "vector_bits", "registers"),
    [
        (V4, "x86-64-v4", 512, 32),
        (V4 - {"avx512vl"}, "x86-64-v3", 256, 16),
        (V3, "x86-64-v3", 256, 16),
        (V3 - {"fma"}, "x86-64-v2", 128, 16),
        (set(), "x86-64", 128, 16),
    ],
)
def test_x86_gets_the_highest_level_all_of_whose_flags_it_has(
    flags: set[str], cpu: str, vector_bits: int, registers: int
) -> None:
    isa = isa_of("x86_64", flags)
    assert (isa.cpu, isa.vector_bits, isa.vector_registers) == (cpu, vector_bits, registers)


def test_a_64_bit_arm_has_neon_whatever_its_flags_say() -> None:
    assert isa_of("aarch64", ()).vector_bits == isa_of("arm64", ()).vector_bits == 128


def test_an_unknown_machine_computes_one_float_at_a_time() -> None:
    assert isa_of("vax", V4).vector_bits == 32


def test_a_flag_counts_only_when_every_processor_has_it() -> None:
    text = "processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    assert flags_of(text) == {"fpu"}
    assert flags_of("") == frozenset()


def test_memory_is_counted_in_bytes() -> None:
    assert total_memory_of("MemFree: 1 kB\nMemTotal:       2048 kB\n") == 2048 * 1024
    assert total_memory_of("") is None


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("250000 100000", 2), ("50000 100000", 1), ("-1 100000", None), ("", None)],
)
def test_a_quota_grants_whole_cores_and_at_least_one(text: str, cores: int | None) -> None:
    assert core_limit_of(text) == cores


def test_a_memory_limit_may_be_absent() -> None:
    assert memory_limit_of("1048576\n") == 1048576
    assert memory_limit_of("max\n") is None


def test_the_limits_of_parent_groups_bind_too() -> None:
    root = Path("/cg")
    assert cgroup_folders("0::/a/b\n", root, "memory") == (root / "a" / "b", root / "a", root)
    assert cgroup_folders("4:memory:/x\n3:cpuset:/y\n", root, "memory") == (root / "memory" / "x", root / "memory")


def test_the_smallest_limit_on_the_way_up_wins(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/pod/container\n")
    (proc / "meminfo").write_text("MemTotal: 1000000 kB\n")
    (cgroup / "pod" / "container").mkdir(parents=True)
    (cgroup / "pod" / "memory.max").write_text("300000\n")
    (cgroup / "pod" / "container" / "memory.max").write_text("max\n")
    (cgroup / "pod" / "container" / "cpu.max").write_text("100000 100000\n")
    facts = read_host(proc, cgroup)
    assert facts.memory_bytes == 300000
    assert facts.cores == 1


def test_no_more_cores_are_counted_than_a_program_has_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgetrain.targets.host._available_cores", lambda: 256)
    assert read_host(tmp_path, tmp_path).cores == MOST_THREADS
    assert f"#define EDGE_MAX_THREADS {MOST_THREADS}\n" in runtime_text("edgetrain.h")


def test_this_machine_can_be_read_without_proc_and_cgroups(tmp_path: Path) -> None:
    facts = read_host(tmp_path, tmp_path)
    assert facts.cores >= 1
    assert facts.memory_bytes > 10**6


@pytest.mark.parametrize(("size", "expected"), [("2048K", 2 << 20), ("", 0), ("many", 0)])
def test_the_second_level_cache_is_read_from_the_system(size: str, expected: int, tmp_path: Path) -> None:
    for number, level in enumerate((1, 1, 2, 3)):
        index = tmp_path / f"index{number}"
        index.mkdir()
        (index / "level").write_text(f"{level}\n")
        (index / "size").write_text(f"{size if level == 2 else '32K'}\n")
    assert cache_bytes(tmp_path) == expected
    assert cache_bytes(tmp_path / "nowhere") == 0
