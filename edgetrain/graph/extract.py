"""The bridge from Relax to plain data: legalise, fuse, then read kernels and calls off the result.

Nothing else in edgetrain looks at fused Relax. Kernels get the C symbols `k0`, `k1`, … in the order of first use;
equal kernels are compiled once.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import Constant, PrimFunc, relax, tvm, tvm_ffi
from edgetrain.errors import InternalError
from edgetrain.graph.build import BuiltFunction, BuiltStep
from edgetrain.graph.ir import LOSS, STEP, Op, Phase, Role, Tensor, TrainGraph, validate
from edgetrain.graph.traffic import Traffic, moved_bytes
from edgetrain.model.model import Array

log = logging.getLogger(__name__)


Aliases = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel before lowering. `aliases` are the positions of parameters that are one tensor: read, then written."""

    symbol: str
    function: Any  # tirx.PrimFunc
    aliases: Aliases = ()


@dataclass(frozen=True, kw_only=True)
class Extracted:
    graph: TrainGraph
    kernels: tuple[Kernel, ...]
    initial: Mapping[str, Array]  # parameters, state and constants
    traffic: Traffic | None = None  # of a step; None where nobody counted


@dataclass(frozen=True, slots=True)
class _Call:
    kernel: str  # Relax's name for it
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def aliases_of(reads: Sequence[str], writes: Sequence[str]) -> Aliases:
    """What a call writes over: each position of such a tensor among what it reads, and the one where it is written."""
    return tuple(
        (position, len(reads) + number)
        for number, written in enumerate(writes)
        for position, read in enumerate(reads)
        if read == written
    )


def legalize(built: BuiltStep) -> Any:
    """The module with every op a call to a PrimFunc of its own."""
    passes = [
        relax.transform.DeadCodeElimination(list(built.functions)),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
    ]
    return _passed(built.module, passes)


def fuse(legalized: Any, built: BuiltStep) -> Any:
    """The module that `legalize` left, elementwise neighbours fused into one PrimFunc."""
    return _tidied(_passed(legalized, [relax.transform.FuseOps(), relax.transform.FuseTIR()]), built)


def _tidied(module: Any, built: BuiltStep) -> Any:
    passes = [relax.transform.DeadCodeElimination(list(built.functions)), relax.transform.CanonicalizeBindings()]
    return _passed(module, passes)


def _passed(module: Any, passes: list[Any]) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return tvm.ir.transform.Sequential(passes)(module)


def extract(built: BuiltStep, name: str) -> Extracted:
    """The training graph and its kernels. Scratch is unknown before lowering and filled in there."""
    legalized = legalize(built)
    module = fuse(legalized, built)
    tensors = dict(built.tensors)
    initial = dict(built.initial)
    symbols = _SymbolTable(module)
    views = _views(module)
    functions: dict[str, tuple[Op, ...]] = {}
    for function, signature in built.functions.items():
        calls = _read_function(module[function], signature, function, tensors, initial, views)
        calls = _order(calls, tensors)
        phases = _phases(calls, tensors)
        functions[function] = tuple(
            Op(
                name=f"{i:04d}.{call.kernel}",
                kernel=symbols.symbol(call),
                reads=call.reads,
                writes=call.writes,
                phase=phase,
                flops=symbols.flops(call.kernel),
                source=_source(call, tensors),
            )
            for i, (call, phase) in enumerate(zip(calls, phases, strict=True))
        )
    used = {n for ops in functions.values() for op in ops for n in (*op.reads, *op.writes)}
    tensors = {n: t for n, t in tensors.items() if n in used or t.role is not Role.CONSTANT}
    graph = TrainGraph(name=name, tensors=tensors, functions=functions)
    validate(graph)
    log.info("extracted %s", ", ".join(f"{f}: {len(ops)} ops" for f, ops in functions.items()))
    traffic = Traffic(
        moved_bytes=moved_bytes(functions[STEP], tensors),
        unfused_bytes=_unfused_bytes(_tidied(legalized, built), built),
    )
    return Extracted(graph=graph, kernels=symbols.kernels(), initial=initial, traffic=traffic)


def _unfused_bytes(module: Any, built: BuiltStep) -> int:
    """What a step would move if each of its ops were a kernel of its own."""
    tensors = dict(built.tensors)
    calls = _read_function(module[STEP], built.functions[STEP], STEP, tensors, dict(built.initial), _views(module))
    return moved_bytes(calls, tensors)


class _SymbolTable:
    """Gives each distinct kernel a C symbol, once."""

    def __init__(self, module: Any) -> None:
        self._functions = {g.name_hint: f for g, f in module.functions.items() if isinstance(f, PrimFunc)}
        self._by_hash: dict[tuple[int, Aliases], list[Kernel]] = {}
        self._symbols: dict[tuple[str, Aliases], Kernel] = {}
        self._flops: dict[str, int] = {}

    def symbol(self, call: _Call) -> str:
        key = (call.kernel, aliases_of(call.reads, call.writes))
        if key not in self._symbols:
            self._symbols[key] = self._find_or_add(*key)
        return self._symbols[key].symbol

    def _find_or_add(self, name: str, aliases: Aliases) -> Kernel:
        function = self._functions[name].without_attr("global_symbol")
        alike = self._by_hash.setdefault((int(tvm_ffi.structural_hash(function)), aliases), [])
        for kernel in alike:
            if tvm_ffi.structural_equal(kernel.function, function):
                return kernel
        count = sum(len(k) for k in self._by_hash.values())
        kernel = Kernel(symbol=f"k{count}_{name}"[:100], function=function, aliases=aliases)
        alike.append(kernel)
        return kernel

    def flops(self, name: str) -> int:
        if name not in self._flops:
            self._flops[name] = count_flops(self._functions[name])
        return self._flops[name]

    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(dict.fromkeys(self._symbols.values()))


def count_flops(function: Any) -> int:
    """Arithmetic of one kernel run, estimated from its TIR; 0 where TVM cannot tell."""
    try:
        return int(tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": function})))
    except Exception:  # opaque blocks: the roofline then goes by bytes moved
        return 0


def _source(call: _Call, tensors: Mapping[str, Tensor]) -> str:
    """What a person would call it: the fused ops and the first parameter they work with."""
    name = call.kernel.removeprefix("fused_").rstrip("0123456789")
    parameter = next((n for n in call.reads if tensors[n].role is Role.PARAMETER), None)
    return f"{name} of {parameter}" if parameter else name


def _views(module: Any) -> frozenset[str]:
    """The kernels that only copy their input: the same bytes, in another shape."""
    return frozenset(
        str(g.name_hint)
        for g, f in module.functions.items()
        if isinstance(f, PrimFunc) and relax.analysis.has_reshape_pattern(f)
    )


def _read_function(
    function: Any,
    signature: BuiltFunction,
    prefix: str,
    tensors: dict[str, Tensor],
    initial: dict[str, Array],
    views: frozenset[str],
) -> list[_Call]:
    """The calls of one fused function, with results renamed to the persistent tensors they update.

    A view is its source under another shape, and no call: kernels know shapes, tensors are bytes. One that is a result
    is copied: it may outlive its source.
    """
    environment: dict[Any, Any] = dict(zip(function.params, signature.arguments, strict=True))
    calls: list[_Call] = []

    def read(expr: Any) -> Any:
        match expr:
            case relax.Var():
                return environment[expr]
            case relax.Tuple():
                return [read(f) for f in expr.fields]
            case relax.TupleGetItem():
                return read(expr.tuple_value)[expr.index]
            case Constant():
                return _constant(expr.value.numpy(), tensors, initial)
            case _:
                raise InternalError(f"fused function `{prefix}` holds an expression of type {type(expr).__name__}")

    returned = _returned(function)
    for block in function.body.blocks:
        for binding in block.bindings:
            var, expr = binding.var, binding.value
            if not isinstance(expr, relax.Call):
                environment[var] = read(expr)
                continue
            if str(expr.op.name) != "relax.call_tir":
                raise InternalError(f"`{expr.op.name}` was not lowered to a kernel", fix="report it with the model")
            outputs = var.ty.fields if isinstance(var.ty, relax.TupleType) else [var.ty]
            names = [f"{prefix}.{len(calls)}.{i}" for i in range(len(outputs))]
            for name, ty in zip(names, outputs, strict=True):
                tensors[name] = Tensor(
                    name=name, shape=tuple(int(d) for d in ty.shape), dtype=str(ty.dtype), role=Role.TEMPORARY
                )
            reads = (
                [read(a) for a in expr.args[1].fields] if isinstance(expr.args[1], relax.Tuple) else read(expr.args[1])
            )
            kernel = str(expr.args[0].name_hint)
            if kernel in views and not any(var.same_as(result) for result in returned):
                del tensors[names[0]]
                environment[var] = reads[0]
                continue
            calls.append(_Call(kernel, tuple(reads), tuple(names)))
            environment[var] = names if isinstance(var.ty, relax.TupleType) else names[0]
    results = read(function.body.body)
    return _rename_results(calls, dict(zip(signature.results, results, strict=True)), tensors)


def _returned(function: Any) -> list[Any]:
    """The variables whose values the function returns, themselves and not other names for them."""
    values = {binding.var: binding.value for block in function.body.blocks for binding in block.bindings}

    def origin(expr: Any) -> Any:
        while isinstance(expr, relax.Var) and isinstance(values.get(expr), (relax.Var, relax.Tuple)):
            expr = values[expr]
        return expr

    return [origin(field) for field in origin(function.body.body).fields]


def _constant(value: Array, tensors: dict[str, Tensor], initial: dict[str, Array]) -> str:
    digest = hashlib.sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes()).hexdigest()
    name = f"constant.{digest[:16]}"
    if name in tensors:
        return name
    tensors[name] = Tensor(name=name, shape=tuple(value.shape), dtype=str(value.dtype), role=Role.CONSTANT)
    initial[name] = value
    return name


def _rename_results(calls: list[_Call], results: Mapping[str, str], tensors: dict[str, Tensor]) -> list[_Call]:
    """The temporary that becomes a parameter's new value *is* the parameter: written in place."""
    renamed = {}
    for persistent, temporary in results.items():
        if temporary in renamed or not tensors[temporary].is_temporary:
            raise InternalError(
                f"`{persistent}` would be written from `{temporary}`, which is not its own value",
                why="the model returns an input, a weight, or one value twice",
                fix="export the model with distinct computed outputs",
            )
        renamed[temporary] = persistent
    for temporary in renamed:
        del tensors[temporary]
    swap: Callable[[str], str] = lambda n: renamed.get(n, n)  # noqa: E731
    return [_Call(c.kernel, tuple(map(swap, c.reads)), tuple(map(swap, c.writes))) for c in calls]


def _order(calls: list[_Call], tensors: Mapping[str, Tensor]) -> list[_Call]:
    """A stable order in which every update in place comes after the last reader of the old value.

    A reader of an *output* (loss, logits) reads the new value instead, as of any temporary.
    """
    writers = {n: i for i, c in enumerate(calls) for n in c.writes}
    before: list[set[int]] = [set() for _ in calls]
    for i, call in enumerate(calls):
        for name in call.reads:
            writer = writers.get(name)
            if writer is None or writer == i:
                continue
            if tensors[name].role in (Role.TEMPORARY, Role.OUTPUT):
                before[i].add(writer)
            else:
                before[writer].add(i)
    after: list[list[int]] = [[] for _ in calls]
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].append(i)
    waiting = [len(earlier) for earlier in before]
    ready = [i for i, count in enumerate(waiting) if count == 0]  # a heap: the earliest in Relax's order goes first
    order: list[_Call] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(calls[i])
        for j in after[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    if len(order) != len(calls):
        raise InternalError("updates in place depend on each other in a circle")
    return order


def _phases(calls: list[_Call], tensors: Mapping[str, Tensor]) -> list[Phase]:
    """Forward is what the loss (or, without one, everything) depends on, and what else comes before it.

    Updates write parameters or state.
    """
    writers = {n: i for i, c in enumerate(calls) for n in c.writes}
    updates = {i for i, c in enumerate(calls) if any(tensors[n].role in (Role.PARAMETER, Role.STATE) for n in c.writes)}
    loss = writers.get(LOSS)
    if loss is None:
        return [Phase.UPDATE if i in updates else Phase.FORWARD for i in range(len(calls))]
    forward = set()
    stack = [loss]
    while stack:
        for name in calls[stack.pop()].reads:
            writer = writers.get(name)
            if writer is not None and writer not in forward and tensors[name].is_temporary:
                forward.add(writer)
                stack.append(writer)

    def phase(i: int) -> Phase:
        if i == loss:
            return Phase.LOSS
        if i in updates:
            return Phase.UPDATE
        return Phase.FORWARD if i in forward or i < loss else Phase.BACKWARD

    return [phase(i) for i in range(len(calls))]
