"""Kernels → OpenCL C and launches: each is scheduled by TVM's rules for GPUs and lowered without TVM's runtime.

TVM splits a scheduled kernel into functions for the device and one for the host. Ours has no use for the host's
function but to read it: where it does nothing but launch, its launches are data for the emitted driver, and what it
allocates is scratch in the arena. Where it does anything else, the next rule is asked.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgetrain._tvm import Call, PrimFunc, Target, ir, s_tir, tirx, tvm, tvm_ffi
from edgetrain.compiler.device_code import DeviceCode, Extents, Launch
from edgetrain.compiler.lower import Lowered, buffer_bytes, prepared
from edgetrain.compiler.schedules import ScheduleChoice
from edgetrain.errors import UnsupportedError
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.targets.device import Gpu
from edgetrain_tuner.schedule import Schedule

log = logging.getLogger(__name__)

_GPU_RULES = s_tir.dlight.gpu
# The first whose schedule becomes nothing but launches. The last runs one thread for each element, which nearly every
# kernel can be. GEMV is left out: it raises AssertionErrors in TVM 0.27.
_RULES: Mapping[str, Callable[[], Any]] = {
    "dlight-matmul": _GPU_RULES.Matmul,
    "dlight-reduction": _GPU_RULES.Reduction,
    "dlight-fallback": _GPU_RULES.Fallback,
}
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_IN_C_NAMES = re.compile(r"[^A-Za-z0-9_]")
_GROUP_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
_THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


class _RefusedError(Exception):
    """A schedule that the driver cannot launch; the message says why."""


@dataclass(frozen=True, kw_only=True)
class GpuLowered:
    """The graph with its kernels' scratch and the GPU's alignment, and the kernels as code of the device."""

    lowered: Lowered
    code: DeviceCode


@dataclass(frozen=True, kw_only=True)
class _KernelCode:
    rule: str
    source: str
    launches: tuple[Launch, ...]
    scratch_bytes: tuple[int, ...]


def gpu_target(gpu: Gpu) -> Any:
    """What TVM's rules and code generator are told."""
    description = {
        "kind": gpu.api,
        "max_num_threads": gpu.group_threads,
        "max_threads_per_block": gpu.group_threads,
        "max_shared_memory_per_block": gpu.local_bytes,
    }
    return Target(description, host="llvm")


def lower_for_gpu(extracted: Extracted, gpu: Gpu, progress: Callable[[int, int], None] | None = None) -> GpuLowered:
    """Schedules and lowers every kernel. Raises `UnsupportedError` naming all kernels that no rule can launch."""
    target = gpu_target(gpu)
    found: dict[str, _KernelCode] = {}
    refused: dict[str, Sequence[str]] = {}
    for count, kernel in enumerate(extracted.kernels, 1):
        code, reasons = _first_that_launches(kernel, gpu, target)
        if code is None:
            refused[kernel.symbol] = reasons
        else:
            found[kernel.symbol] = code
        if progress:
            progress(count, len(extracted.kernels))
    if refused:
        raise _unsupported(refused, extracted, gpu)
    log.info("%d kernels are %d launches", len(found), sum(len(code.launches) for code in found.values()))
    graph = extracted.graph
    functions = {
        name: tuple(replace(op, scratch_bytes=found[op.kernel].scratch_bytes) for op in ops)
        for name, ops in graph.functions.items()
    }
    return GpuLowered(
        lowered=Lowered(
            graph=replace(graph, functions=functions, alignment_bytes=gpu.alignment_bytes),
            kernels=extracted.kernels,
            choices={s: ScheduleChoice(schedule=Schedule(code.rule, {})) for s, code in found.items()},
        ),
        code=DeviceCode(
            source="\n".join(code.source for code in found.values()),
            launches={symbol: code.launches for symbol, code in found.items()},
        ),
    )


def _unsupported(refused: Mapping[str, Sequence[str]], extracted: Extracted, gpu: Gpu) -> UnsupportedError:
    sources = {op.kernel: op.source for ops in extracted.graph.functions.values() for op in ops}
    told = [f"`{symbol}` (made from {sources[symbol]}): {'; '.join(why)}" for symbol, why in refused.items()]
    return UnsupportedError(
        f"no schedule for {gpu.api} fits {len(refused)} of {len(extracted.kernels)} kernels",
        why="\n".join(told),
        fix="train it on the processor, with `--target host`",
    )


def _first_that_launches(kernel: Kernel, gpu: Gpu, target: Any) -> tuple[_KernelCode | None, Sequence[str]]:
    """The code of the first rule that fits, or what every rule failed on."""
    reasons = []
    function = _with_c_names(kernel.function)
    for name, rule in _RULES.items():
        # TVM's rules end with whatever error their analysis ran into where a kernel is not one of theirs.
        try:
            with target:
                schedule = rule().apply(function, target, False)
            if schedule is None:
                continue
            schedule = schedule[0] if isinstance(schedule, list) else schedule
            scheduled = prepared(replace(kernel, function=schedule.mod["main"]))
            return _lowered(name, scheduled, kernel.symbol, gpu, target), ()
        except Exception as error:
            words = str(error).strip().splitlines() or [type(error).__name__]
            log.info("%s is not launched by %s: %s", kernel.symbol, name, words[-1])
            reasons.append(f"{name}: {words[-1]}")
    return None, reasons or ["no rule knows a kernel of this kind"]


def _with_c_names(function: Any) -> Any:
    """The kernel without names that C cannot spell: some are of the ONNX file, and hold slashes and anything else."""
    renamed: list[tuple[Any, Any]] = []

    def on_variable(variable: Any) -> None:
        if not _C_NAME.match(str(variable.name)) and not any(variable.same_as(old) for old, _ in renamed):
            renamed.append((variable, tirx.Var(_NOT_IN_C_NAMES.sub("_", f"v_{variable.name}"), variable.ty)))

    def new(variable: Any) -> Any:
        return next((new for old, new in renamed if variable.same_as(old)), variable)

    for parameter in function.params:
        on_variable(parameter)
    tvm_ffi.structural_walk(function.body, (tirx.Var, on_variable))
    if not renamed:
        return function
    body = tvm_ffi.structural_map(function.body, (tirx.Var, new))
    return PrimFunc([new(parameter) for parameter in function.params], body, function.ret_type, function.attrs)


def _lowered(rule: str, function: Any, symbol: str, gpu: Gpu, target: Any) -> _KernelCode:
    """Raises `_RefusedError` where a driver cannot launch it, or the device has not enough of something."""
    module = tirx.transform.BindTarget(target)(tvm.IRModule({symbol: function}))
    module = ir.transform.Sequential(_passes())(module)
    on_device = {name: body for name, body in module.functions.items() if str(name.name_hint) != symbol}
    if not on_device:
        raise _RefusedError("nothing of it would run on the device")
    host = _HostFunction(module[symbol])
    for launch in host.launches:
        if math.prod(launch.threads) > gpu.group_threads:
            raise _RefusedError(f"it wants {math.prod(launch.threads)} threads in a group of {gpu.group_threads}")
    for body in on_device.values():
        if (local_bytes := _local_bytes(body)) > gpu.local_bytes:
            raise _RefusedError(f"it wants {local_bytes} bytes of local memory, of {gpu.local_bytes}")
    x = tirx.transform
    finish = [x.BF16StorageLegalize(), x.LowerWarpMemory(), x.StmtSimplify(), x.LowerIntrin()]
    device_module = ir.transform.Sequential(finish)(tvm.IRModule(on_device))
    built = tvm.get_global_func(f"target.build.{gpu.api}")(device_module, target)
    return _KernelCode(
        rule=rule,
        source=str(built.inspect_source()),
        launches=tuple(host.launches),
        scratch_bytes=tuple(host.scratch_bytes),
    )


def _passes() -> list[Any]:
    """TVM's own, up to the split into a function for the host and functions for the device."""
    s, x = s_tir.transform, tirx.transform
    return [
        s.CanonicalizeLoop(),
        s.LowerCrossThreadReduction(),
        s.LowerInitBlock(),
        s.PlanAndUpdateBufferAllocationLocation(),
        s.ConvertBlocksToOpaque(),
        s.LiftThreadBinding(),
        s.CompactBufferAllocation(),
        s.LowerAutoCopy(),
        s.UnifyThreadBinding(),
        s.LowerMatchBuffer(),
        s.StmtSimplify(),
        s.LowerOpaqueBlock(),
        x.FlattenBuffer(),
        x.BF16ComputeLegalize(),
        x.NarrowDataType(32),
        s.LoopPartition(),
        x.VectorizeLoop(True),
        s.InjectVirtualThread(),
        x.StorageRewrite(),
        s.HoistIfThenElse(),
        x.UnrollLoop(),
        s.RenormalizeSplitPattern(),
        x.StmtSimplify(),
        x.RemoveNoOp(),
        s.RewriteUnsafeSelect(),
        x.CommonSubexprElim(),
        x.VerifyMemory(),
        x.AnnotateEntryFunc(),
        s.ThreadSync("shared"),
        s.ThreadSync("warp"),
        s.LowerThreadAllreduce(),
        x.SplitHostDevice(),
    ]


def _local_bytes(function: Any) -> int:
    """Of memory that a group shares, as the function declares it."""
    sizes: list[int] = []

    def on_allocation(node: Any) -> None:
        if str(node.buffer.ty.storage_scope) == "shared":
            sizes.append(buffer_bytes(node.buffer.ty))

    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, on_allocation))
    return sum(sizes)


@dataclass
class _HostFunction:
    """What is left for the host: launches, with what they are given, in order, and scratch between them.

    Raises `_RefusedError` for a function that does anything else.
    """

    function: Any
    launches: list[Launch] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    _buffers: list[tuple[Any, int]] = field(default_factory=list)  # with the position of each

    def __post_init__(self) -> None:
        body = self.function.body
        for kind in (tirx.For, tirx.IfThenElse, tirx.BufferStore):
            tvm_ffi.structural_walk(body, (kind, self._refuse))
        self._buffers = [(parameter, position) for position, parameter in enumerate(self.function.params)]
        tvm_ffi.structural_walk(body, (tirx.AllocBuffer, self._on_allocation))
        tvm_ffi.structural_walk(body, (tirx.DeclBuffer, self._on_declaration))
        tvm_ffi.structural_walk(body, (Call, self._on_call))

    @staticmethod
    def _refuse(node: Any) -> None:
        raise _RefusedError(f"the host would have to run a {type(node).__name__}")

    def _on_allocation(self, node: Any) -> None:
        self._buffers.append((node.buffer, len(self.function.params) + len(self.scratch_bytes)))
        self.scratch_bytes.append(buffer_bytes(node.buffer.ty))

    def _on_declaration(self, node: Any) -> None:
        self._buffers.append((node.buffer, self._position(node.data)))

    def _on_call(self, call: Any) -> None:
        if str(getattr(call.op, "name", "")) != "tirx.call_ffi_kernel":
            return
        tags = [str(tag) for tag in call.attrs.launch_params]
        name, *given = call.args
        pointers, extents = given[: len(given) - len(tags)], given[len(given) - len(tags) :]
        size = {tag: int(extent) for tag, extent in zip(tags, extents, strict=True)}
        unknown = size.keys() - {*_GROUP_AXES, *_THREAD_AXES}
        if unknown:
            raise _RefusedError(f"it is launched with {', '.join(sorted(unknown))}")
        self.launches.append(
            Launch(
                function=str(name.value),
                arguments=tuple(self._position(pointer) for pointer in pointers),
                groups=_extents(size, _GROUP_AXES),
                threads=_extents(size, _THREAD_AXES),
            )
        )

    def _position(self, pointer: Any) -> int:
        """Among the kernel's pointers. Raises `_RefusedError` for an argument that is none of them."""
        buffer = pointer.args[0] if isinstance(pointer, Call) else pointer
        for known, position in self._buffers:
            if known.same_as(buffer):
                return position
        raise _RefusedError("a launch is given something other than a tensor")


def _extents(size: Mapping[str, int], axes: Sequence[str]) -> Extents:
    x, y, z = (size.get(axis, 1) for axis in axes)
    return x, y, z
