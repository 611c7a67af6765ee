"""Scheduled kernels → an object file of plain C functions: raw pointers in, no TVM runtime, no allocation.

TVM's own pipeline would pack arguments and call its runtime for workspace. Ours ends earlier: parameters become raw
pointers, and every allocation too large for the stack becomes one more pointer parameter, planned in the arena.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgetrain._tvm import PIPELINE_MAP, PrimFunc, Target, ir, s_tir, tirx, tvm, tvm_ffi
from edgetrain.compiler.schedules import Choices, ScheduleChoice
from edgetrain.compiler.select_loads import load_before_selecting
from edgetrain.compiler.task_scratch import keep_tasks_apart
from edgetrain.errors import DeviceError, InternalError
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.ir import DTYPE_BYTES, Op, TrainGraph
from edgetrain.targets.device import Codegen
from edgetrain_tuner import rules
from edgetrain_tuner.elementary import is_elementary
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.loops import REGISTERS
from edgetrain_tuner.schedule import ScheduleRefusedError

log = logging.getLogger(__name__)

PIPELINE = "edgetrain"
LARGEST_STACK_BYTES = 64
LARGEST_THREAD_STACK_BYTES = 4096  # inside a parallel loop scratch is each thread's own, so it stays on the stack
_OPTIMISATION_LEVEL = 3
# With AVX-512 gathers, LLVM 22 takes the index `i % 4` in a loop of 16 for consecutive and reads foreign memory.
_NO_GATHERS = ("+prefer-no-gather",)
# LLVM halves AVX-512's registers in loops that it vectorises. That suits short rows, of which fewer elements are left
# over, but a loop that computes exp or erf takes 1.4 times as long.
_WHOLE_REGISTERS = ("-prefer-256-bit",)


def tvm_target(codegen: Codegen, *, whole_registers: bool = False) -> Any:
    """What LLVM is told, in TVM's words."""
    description: dict[str, Any] = {
        "kind": "llvm",
        "mcpu": codegen.cpu,
        "num-cores": codegen.cores,
        "opt-level": _OPTIMISATION_LEVEL,
        # Sums may be reassociated: that lets LLVM vectorise a reduction. NaN and infinity stay as they are.
        "fast-math-reassoc": True,
        "fast-math-contract": True,
        "fast-math-nsz": True,
    }
    if codegen.triple:
        description["mtriple"] = codegen.triple
    is_x86 = codegen.triple.startswith(("x86_64", "i686")) or codegen.cpu.startswith("x86-64")
    features = [feature for feature in codegen.features.split(",") if feature]
    if features or is_x86:
        x86 = (*_NO_GATHERS, *(_WHOLE_REGISTERS if whole_registers else ())) if is_x86 else ()
        description["mattr"] = [*features, *x86]
    if codegen.triple.endswith("hf"):
        # TVM does not derive it from the triple; without it, calls to expf pass their argument where nobody looks.
        description["mfloat-abi"] = "hard"
    return Target(description)


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """The graph with its kernels' scratch filled in, and the kernels ready for any code generator."""

    graph: TrainGraph
    kernels: tuple[Kernel, ...]  # scheduled
    choices: Choices  # what each was scheduled with


def lower(
    extracted: Extracted,
    machine: Machine,
    progress: Callable[[int, int], None] | None = None,
    *,
    choices: Choices | None = None,
) -> Lowered:
    """Schedules every kernel, as `choices` say or else by the rules, and finds the scratch each needs.

    Independent of where the code will run. A choice that does not fit its kernel is refitted, or left to the rules.
    """
    scheduled: list[Kernel] = []
    scratch: dict[str, tuple[int, ...]] = {}
    chosen: dict[str, ScheduleChoice] = {}
    for count, kernel in enumerate(extracted.kernels, 1):
        wanted = (choices or {}).get(kernel.symbol, ScheduleChoice())
        chosen[kernel.symbol], function = _scheduled(kernel, wanted, machine)
        done = replace(kernel, function=function)
        scheduled.append(done)
        scratch[kernel.symbol] = scratch_of(done)
        if progress:
            progress(count, len(extracted.kernels))
    graph = extracted.graph
    functions: Mapping[str, tuple[Op, ...]] = {
        f: tuple(replace(op, scratch_bytes=scratch[op.kernel]) for op in ops) for f, ops in graph.functions.items()
    }
    return Lowered(graph=replace(graph, functions=functions), kernels=tuple(scheduled), choices=chosen)


def _scheduled(kernel: Kernel, wanted: ScheduleChoice, machine: Machine) -> tuple[ScheduleChoice, Any]:
    """The choice with the schedule that was applied, and what came of it."""
    try:
        schedule, function = rules.scheduled(kernel.function, machine, wanted.schedule)
    except ScheduleRefusedError as error:
        log.info("%s keeps its rule's schedule: %s", kernel.symbol, error)
        schedule, function = rules.scheduled(kernel.function, machine)
        return ScheduleChoice(schedule=schedule), function
    return replace(wanted, schedule=schedule), function


def compile_kernels(kernels: Sequence[Kernel], codegen: Codegen, out: Path) -> None:
    """Writes one object file with every kernel. Raises `DeviceError` when LLVM does not know the target."""
    has_elementary = any(is_elementary(kernel.function) for kernel in kernels)
    module = tvm.IRModule({k.symbol: prepared(k) for k in kernels})
    try:
        code = tvm_target(codegen, whole_registers=has_elementary)
        library = tirx.build(module, target=code, pipeline=_register_pipeline())
    except Exception as error:
        if "LLVM instance error" not in str(error) and "TargetCreationError" not in str(error):
            raise
        raise DeviceError(
            f"the code generator does not accept target `{codegen.triple or 'host'}` with cpu `{codegen.cpu}`",
            why=str(error).strip().splitlines()[0],
            fix="check `triple`, `cpu` and `features` in the target profile",
        ) from error
    library.write_to_file(str(out), "o")
    log.info("compiled %d kernels for %s, %d bytes", len(kernels), codegen.triple or "this host", out.stat().st_size)


def prepared(kernel: Kernel) -> Any:
    """The kernel by its name. What it writes over is one buffer in it, read and written through one pointer.

    LLVM then knows that an element depends on nothing but itself, and may take all other pointers for different ones.
    """
    function = kernel.function.with_attr("global_symbol", kernel.symbol)
    parameters = list(function.params)
    same = [(parameters[read], parameters[written]) for read, written in kernel.aliases]
    if not same:
        return function

    def on_buffer(buffer: Any) -> Any:
        return next((written for read, written in same if buffer.same_as(read)), buffer)

    body = tvm_ffi.structural_map(function.body, (tirx.Var, on_buffer))
    return PrimFunc(function.params, body, function.ret_type, function.attrs)


def passes_before_pointers() -> list[Any]:
    """From scheduled blocks to flat loops."""
    s, x = s_tir.transform, tirx.transform
    return [
        s.CanonicalizeLoop(),
        s.LowerInitBlock(),
        s.PlanAndUpdateBufferAllocationLocation(),
        s.ConvertBlocksToOpaque(),
        s.CompactBufferAllocation(),
        s.LowerMatchBuffer(),
        s.LowerOpaqueBlock(),
        keep_tasks_apart(),
        # Before any simplification: only as they were fused do the indices of a loop over several axes become one sum.
        x.FlattenBuffer(),
        s.StmtSimplify(),
        x.BF16ComputeLegalize(),
        x.NarrowDataType(32),
        s.LoopPartition(),
        x.VectorizeLoop(True),
        x.StorageRewrite(),
        s.HoistIfThenElse(),
        x.UnrollLoop(),
        s.RenormalizeSplitPattern(),
        x.StmtSimplify(),
        x.RemoveNoOp(),
        load_before_selecting(),
        s.RewriteUnsafeSelect(),
        x.CommonSubexprElim(),
    ]


def scratch_of(kernel: Kernel) -> tuple[int, ...]:
    """The sizes of what a scheduled kernel wants beside its tensors, in the order of its extra pointers."""
    module = tvm.IRModule({kernel.symbol: prepared(kernel)})
    lowered = ir.transform.Sequential(passes_before_pointers())(module)
    return tuple(nbytes for _, nbytes in _arena_allocations(lowered[kernel.symbol].body))


def buffer_bytes(ty: Any) -> int:
    """Vector types such as `float32x16` count each lane."""
    scalar, _, lanes = str(ty.dtype).partition("x")
    nbytes = DTYPE_BYTES[scalar] * int(lanes or 1)
    for extent in ty.shape:
        nbytes *= int(extent)
    return nbytes


def _arena_allocations(body: Any) -> list[tuple[Any, int]]:
    """The allocations that must live in the arena, with their sizes, in the order of the kernel's extra pointers."""
    inside_parallel: list[Any] = []

    def on_loop(loop: Any) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            tvm_ffi.structural_walk(loop.body, (tirx.AllocBuffer, lambda node: inside_parallel.append(node.buffer)))

    tvm_ffi.structural_walk(body, (tirx.For, on_loop))
    found: list[tuple[Any, int]] = []

    def on_allocation(node: Any) -> None:
        nbytes = buffer_bytes(node.buffer.ty)
        if str(node.buffer.ty.storage_scope) == REGISTERS:
            return
        if any(node.buffer.same_as(b) for b in inside_parallel):
            if nbytes > LARGEST_THREAD_STACK_BYTES:
                raise InternalError(f"a kernel wants {nbytes} bytes of stack in each thread")
        elif nbytes > LARGEST_STACK_BYTES:
            found.append((node.buffer, nbytes))

    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, on_allocation))
    return found


def _use_raw_pointers() -> Any:
    """Buffer parameters and large allocations become raw pointers: the C functions the driver calls."""

    def rewrite(function: Any, _module: Any, _context: Any) -> Any:
        pointers = [_pointer(f"{p.name}_pointer", p.ty.dtype) for p in function.params]
        declarations = [tirx.DeclBuffer(p, data=pointer) for p, pointer in zip(function.params, pointers, strict=True)]
        in_arena = [buffer for buffer, _ in _arena_allocations(function.body)]
        scratch = [_pointer(f"scratch{i}_pointer", buffer.ty.dtype) for i, buffer in enumerate(in_arena)]

        def on_allocation(node: Any) -> Any:
            for buffer, pointer in zip(in_arena, scratch, strict=True):
                if node.buffer.same_as(buffer):
                    return tirx.DeclBuffer(node.buffer, data=pointer)
            return node

        body = tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, on_allocation))
        success = tirx.Return(tirx.IntImm("int32", 0))  # parallel launches return an error code, so all kernels do
        body = tirx.SeqStmt([*declarations, body, success])
        result = PrimFunc([*pointers, *scratch], body, ir.PrimType("int32"), function.attrs)
        if result.attrs and "tirx.is_entry_func" in result.attrs:
            result = result.without_attr("tirx.is_entry_func")
        return result.with_attr({"calling_conv": 0, "tirx.is_global_func": True})

    return tirx.transform.prim_func_pass(rewrite, opt_level=0, name="edgetrain.UseRawPointers")


def _pointer(name: str, dtype: Any) -> Any:
    scalar, _, _ = str(dtype).partition("x")
    return ir.expr.Var(name, ir.PointerType(ir.PrimType(scalar), "global"))


def _register_pipeline() -> str:
    """Adds our pipeline to TVM's table under its name; doing it again changes nothing."""

    def pipeline() -> tuple[Any, Any, Any]:
        def lower_module(module: Any, _context: Any) -> Any:
            passes = [*passes_before_pointers(), _use_raw_pointers(), tirx.transform.BF16StorageLegalize()]
            return ir.transform.Sequential(passes)(module)

        return (
            tvm.transform.module_pass(lower_module, opt_level=0),
            lambda: ir.transform.Sequential([tirx.transform.LowerIntrin()]),
            lambda: ir.transform.Sequential([]),
        )

    PIPELINE_MAP.setdefault(PIPELINE, pipeline)
    return PIPELINE
