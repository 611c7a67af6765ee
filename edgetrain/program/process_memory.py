"""What a process needs to train: the arena of the plan, and beside it the program's code, stacks and buffers.

Planned before there is a program, so that a budget holds all of it; counted exactly once the library is linked.
"""

from __future__ import annotations

from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.plan import NO_PROGRAM, ProgramMemory
from edgetrain.program.artifact import Artifact
from edgetrain.program.image import loaded_bytes
from edgetrain.targets.device import Device
from edgetrain.toolchain.c_compiler import parse_triple

THREAD_BYTES = 16 * 1024  # what a thread of the pool or the pager writes of its stack, with the system's page for it
LOOP_BYTES = 128 * 1024  # what the training loop's own objects take and give back: the heap grows by that much at once
# Of seven models' libraries, the one with the largest kernels has 4.0 kB each (`python -m benchmarks.memory`). Where
# a library is larger than that, the plan is made again with what it takes.
_KERNEL_BYTES = 4096
_RUNTIME_BYTES = 20 * 1024  # the driver and the runtime
_PAGER_BYTES = 8 * 1024 + THREAD_BYTES  # what is used of its buffer, and its thread


def program_memory(graph: TrainGraph, device: Device, threads: int, *, larger_by: int = 0) -> ProgramMemory:
    """What to leave free beside the arena; `larger_by` is what a linked library was found to need on top."""
    triple = device.codegen.triple  # empty: this machine's
    if triple and parse_triple(triple).is_bare_metal:
        return NO_PROGRAM
    kernels = {op.kernel for ops in graph.functions.values() for op in ops}
    code_bytes = _RUNTIME_BYTES + len(kernels) * _KERNEL_BYTES + larger_by
    stacks_bytes = (threads - 1) * THREAD_BYTES
    return ProgramMemory(resident_bytes=code_bytes + stacks_bytes + LOOP_BYTES, paging_bytes=_PAGER_BYTES)


def planned_process_bytes(artifact: Artifact, threads: int) -> int:
    """What a process grows by when it opens the program and runs all of it: arena, code, variables and threads.

    Raises `DataError` when the library cannot be read.
    """
    manifest = artifact.manifest
    is_paging = manifest.page_file_bytes > 0
    started = threads - 1 + is_paging
    return manifest.planned_peak_bytes + loaded_bytes(artifact.library, is_paging=is_paging) + started * THREAD_BYTES


def needed_bytes(artifact: Artifact, threads: int) -> int:
    """The smallest budget that a process with this program keeps."""
    return planned_process_bytes(artifact, threads) + LOOP_BYTES
