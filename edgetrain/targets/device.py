"""One device as plain data: its memory, its rates, what code is generated for, and where tensors are paged to.

Whatever a stage needs to know of a device is taken from these values or derived from them by a function; nobody copies
their fields into a type of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.runtime.sources import MOST_THREADS
from edgetrain.schema import setting
from edgetrain.units import Bytes

GPU_APIS = ("opencl",)
STORAGE_KINDS = ("sd-card", "nvme", "ufs", "disk", "host-memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codegen:
    """The processor as the compiler knows it. `vector_bits` is 32 where there is one float at a time."""

    triple: str = setting()  # LLVM's name; empty: this machine
    cpu: str = setting()
    features: str = setting("")  # LLVM's, separated by commas
    vector_bits: int = setting(minimum=32)
    vector_registers: int = setting(minimum=1)
    cores: int = setting(minimum=1, maximum=MOST_THREADS)
    cache_bytes: int = setting(0, minimum=0)  # the largest cache that a core has to itself; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as the compiler knows it: what kernels may take of it. The driver's own code is the processor's."""

    api: str = setting(choices=GPU_APIS)
    alignment_bytes: int = setting(minimum=64)  # of every tensor: a part of a buffer must begin at such a place
    group_threads: int = setting(minimum=1)  # at most, of one group
    local_bytes: int = setting(minimum=1)  # of memory that a group shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a roofline needs. Rates are sustained, not the datasheet's peak: plans promise seconds."""

    flops_per_s: float = setting(above=0)
    memory_bytes_per_s: float = setting(above=0)
    launch_s: float = setting(minimum=0)  # from one kernel call to the next
    joules_per_flop: float = setting(minimum=0)
    joules_per_byte: float = setting(minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where tensors are paged to. A transfer takes `latency_s` beside the time of its bytes."""

    kind: str = setting("disk", choices=STORAGE_KINDS)
    read_bytes_per_s: float = setting(above=0)
    write_bytes_per_s: float = setting(above=0)
    joules_per_byte_read: float = setting(minimum=0)
    joules_per_byte_written: float = setting(minimum=0)
    latency_s: float = setting(minimum=0)
    overlaps: bool = setting(True)  # transfers go on beside the ops; without it each op waits for them
    keeps_parameters: bool = setting(True)  # parameters and state may be there between steps, not activations alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A processor with a memory of its own: what kernels are compiled for, and what a plan has to fit."""

    name: str
    memory_bytes: Bytes
    rates: Rates
    codegen: Codegen
    storage: Storage | None = None
    gpu: Gpu | None = None  # what kernels run on in the processor's place

    @property
    def is_here(self) -> bool:
        """Whether programs for it run on this machine."""
        return self.codegen.triple == ""
