"""Translates a processor to the types of `edgetrain_tuner`: for its rules, and for the schedule cache. No TVM."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from edgetrain.targets.device import Codegen
from edgetrain_tuner.cache.entry import Target as ScheduleTarget
from edgetrain_tuner.machine import Machine

# What LLVM's triples begin with, as the schedule cache calls it.
_ISAS: Mapping[str, str] = {
    "x86_64": "x86-64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "arm": "arm",
    "thumb": "arm",
    "riscv64": "riscv64",
}


def machine_of(codegen: Codegen) -> Machine:
    """What schedules have to fit."""
    return Machine(vector_bits=codegen.vector_bits, vector_registers=codegen.vector_registers, cores=codegen.cores)


def schedule_target(codegen: Codegen) -> ScheduleTarget | None:
    """The processor as the schedule cache knows it; None for an instruction set that it does not know."""
    architecture = (codegen.triple or platform.machine()).partition("-")[0]
    isa = next((isa for name, isa in _ISAS.items() if architecture.startswith(name)), None)
    if isa is None:
        return None
    return ScheduleTarget(
        isa=isa,
        cpu=codegen.cpu,
        vector_bits=codegen.vector_bits,
        vector_registers=codegen.vector_registers,
        cores=codegen.cores,
        cache_bytes=codegen.cache_bytes,
    )
