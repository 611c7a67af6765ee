"""What a process needs to train: the arena of the plan, and beside it the program's code, stacks and buffers.

Planned before there is a program, so that a budget holds all of it; counted exactly once the library is linked.
"""

from __future__ import annotations

from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.plan import NO_PROGRAM, PAGE_BYTES, ProgramMemory
from edgetrain.program.artifact import Artifact
from edgetrain.program.emit_c import PAGE_BLOCK_BYTES
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
_SEAL_BYTES = 24
_CIPHER_BYTES = PAGE_BLOCK_BYTES + 32 * 1024  # its buffer, what its code takes (23 kB), and seals of 24 bytes a block


def program_memory(
    graph: TrainGraph, device: Device, threads: int, *, larger_by: int = 0, encrypts_pages: bool = False
) -> ProgramMemory:
    """What to leave free beside the arena; `larger_by` is what a linked library was found to need on top.

    With `encrypts_pages` a plan that pages leaves room for the cipher, too. A GPU's memory holds the arena alone.
    """
    if device.gpu is not None:
        return NO_PROGRAM
    triple = device.codegen.triple  # empty: this machine's
    if triple and parse_triple(triple).is_bare_metal:
        return NO_PROGRAM
    kernels = {op.kernel for ops in graph.functions.values() for op in ops}
    code_bytes = _RUNTIME_BYTES + len(kernels) * _KERNEL_BYTES + larger_by
    stacks_bytes = (threads - 1) * THREAD_BYTES
    return ProgramMemory(
        resident_bytes=code_bytes + stacks_bytes + LOOP_BYTES,
        paging_bytes=_PAGER_BYTES + (_CIPHER_BYTES if encrypts_pages else 0),
    )


def planned_process_bytes(artifact: Artifact, threads: int) -> int:
    """What a process grows by when it opens the program and runs all of it: arena, code, variables and threads.

    Of a program for a GPU, what it takes of the device's memory.

    Raises `DataError` when the library cannot be read.
    """
    manifest = artifact.manifest
    if manifest.gpu_api:  # the budget is for the device's memory
        return manifest.planned_peak_bytes
    is_paging = manifest.page_file_bytes > 0
    started = threads - 1 + is_paging
    library_bytes = loaded_bytes(artifact.library, is_paging=is_paging)
    # Of what begins as zero: the buffer that pages are encrypted into, and the seals, which share no page with it.
    sealed_bytes = PAGE_BLOCK_BYTES + _seals_bytes(manifest.page_file_bytes) if manifest.encrypts_pages else 0
    return manifest.planned_peak_bytes + library_bytes + sealed_bytes + started * THREAD_BYTES


def _seals_bytes(page_file_bytes: int) -> int:
    """At most, as if every block were a whole one but one of each page."""
    blocks = -(-page_file_bytes // PAGE_BLOCK_BYTES)
    return (-(-blocks * _SEAL_BYTES // PAGE_BYTES) + 1) * PAGE_BYTES


def needed_bytes(artifact: Artifact, threads: int) -> int:
    """The smallest budget that a process with this program keeps."""
    return planned_process_bytes(artifact, threads) + LOOP_BYTES
