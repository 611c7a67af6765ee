"""What this machine is: its instruction set, cores and memory, as the profile `host` needs them.

`read_host` is the edge that reads `/proc`, cgroups and `platform`; what it read is a `HostFacts`, and the functions
that judge it take text, so that any machine can be tested on any other.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgetrain.runtime.sources import MOST_THREADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Isa:
    """An instruction set as LLVM names it. `cpu` is a safe level, never the exact model: files may move."""

    cpu: str
    features: str
    vector_bits: int
    vector_registers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    isa: Isa
    cores: int
    memory_bytes: int
    cache_bytes: int = 0  # the second-level cache of a core; 0: the system does not say


# The x86-64 micro-architecture levels of the psABI by the flags Linux shows that the lower level lacks, best first.
_X86_LEVELS: tuple[tuple[Isa, frozenset[str]], ...] = (
    (
        Isa(cpu="x86-64-v4", features="", vector_bits=512, vector_registers=32),
        frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi1", "bmi2", "f16c"}),
    ),
    (
        Isa(cpu="x86-64-v3", features="", vector_bits=256, vector_registers=16),
        frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}),
    ),
    (
        Isa(cpu="x86-64-v2", features="", vector_bits=128, vector_registers=16),
        frozenset({"sse4_2", "ssse3", "popcnt", "cx16"}),
    ),
    (Isa(cpu="x86-64", features="", vector_bits=128, vector_registers=16), frozenset()),
)

# Registers of the base instruction set of each machine name that `platform.machine()` gives.
_FIXED_ISAS: Mapping[str, Isa] = {
    "aarch64": Isa(cpu="generic", features="+neon", vector_bits=128, vector_registers=32),
    "arm64": Isa(cpu="apple-m1", features="+neon", vector_bits=128, vector_registers=32),  # macOS
    "armv7l": Isa(cpu="generic", features="+v7,+neon,+vfp4", vector_bits=128, vector_registers=16),
    "riscv64": Isa(cpu="generic-rv64", features="+m,+a,+f,+d,+c", vector_bits=32, vector_registers=32),
}

# One float at a time is true of every machine with a floating-point unit.
_UNKNOWN_ISA = Isa(cpu="", features="", vector_bits=32, vector_registers=16)


def isa_of(machine: str, flags: Collection[str]) -> Isa:
    """The best instruction set that is certain from the machine's name and its CPU flags."""
    if machine.lower() in ("x86_64", "amd64"):
        return next(isa for isa, needed in _X86_LEVELS if needed <= frozenset(flags))
    return _FIXED_ISAS.get(machine.lower(), _UNKNOWN_ISA)


def flags_of(cpuinfo: str) -> frozenset[str]:
    """The flags that every processor of `/proc/cpuinfo` has; empty where it lists none."""
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    sets = [frozenset(value.split()) for key, _, value in lines if key.strip() in ("flags", "Features")]
    return frozenset.intersection(*sets) if sets else frozenset()


def total_memory_of(meminfo: str) -> int | None:
    """`MemTotal` of `/proc/meminfo` in bytes."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def core_limit_of(cpu_max: str) -> int | None:
    """Whole cores that a cgroup's `cpu.max` (`quota period`) grants, at least 1; None where it sets no limit."""
    parts = cpu_max.split()
    if len(parts) != 2 or not parts[0].isdigit():  # version 2 writes `max`, version 1 writes -1
        return None
    return max(1, int(parts[0]) // int(parts[1]))


def memory_limit_of(memory_max: str) -> int | None:
    """A cgroup's memory limit in bytes; None where it sets none."""
    return int(memory_max) if memory_max.strip().isdigit() else None


def cgroup_folders(membership: str, root: Path, controller: str) -> tuple[Path, ...]:
    """The folders of a process's cgroup and of its parents: a limit on any of them binds.

    `membership` is `/proc/self/cgroup`; version 2 mounts at the root, version 1 below the controller's name.
    """
    folders = []
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        parts = [part for part in path.split("/") if part]
        folders += [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return tuple(folders)


def read_host(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> HostFacts:
    """This machine, with the limits of its cgroups. Falls back to what the platform says where a file is missing."""
    membership = _read(proc / "self" / "cgroup")
    core_limits = [_available_cores(), MOST_THREADS]
    for folder in cgroup_folders(membership, cgroup, "cpu"):
        version_1 = f"{_read(folder / 'cpu.cfs_quota_us').strip()} {_read(folder / 'cpu.cfs_period_us').strip()}"
        core_limits += [
            limit for text in (_read(folder / "cpu.max"), version_1) if (limit := core_limit_of(text)) is not None
        ]
    memory_limits = [total_memory_of(_read(proc / "meminfo")) or _physical_memory()]
    for folder in cgroup_folders(membership, cgroup, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = memory_limit_of(_read(folder / name))
            memory_limits += [limit] if limit else []
    return HostFacts(
        isa=isa_of(platform.machine(), flags_of(_read(proc / "cpuinfo"))),
        cores=min(core_limits),
        memory_bytes=min(memory_limits),
        cache_bytes=cache_bytes(),
    )


def cache_bytes(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """The largest cache that a core has to itself, or nearly: its second level. 0 where the system does not say."""
    for index in sorted(caches.glob("index*")):
        if _read(index / "level").strip() == "2":
            size = _read(index / "size").strip()
            return int(size.removesuffix("K")) * 1024 if size.removesuffix("K").isdigit() else 0
    return 0


def machine_id(etc: Path = Path("/etc")) -> str:
    """16 hex digits that stay the same on this machine and name nobody."""
    own = _read(etc / "machine-id").strip() or platform.node()
    return hashlib.sha256(f"edgetrain {own}".encode()).hexdigest()[:16]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux; macOS has no affinity
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
