"""Fuses a weight's update into the kernel that sums its gradient, so that the gradient is never in memory.

The rewrite works on the extracted graph, where the order is known. A gradient and the update that is its only reader
become one op in the update's place, which is after every reader of the old weight. It is done where a rule completes
each element of the gradient in place; with other rules the gradient would only move into the kernel's scratch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgetrain._tvm import PrimFunc, relax
from edgetrain.graph.extract import Aliases, Extracted, Kernel, aliases_of
from edgetrain.graph.ir import STEP, Op, Tensor, TrainGraph, validate
from edgetrain.graph.traffic import Traffic, moved_bytes
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine

log = logging.getLogger(__name__)

_LONGEST = 50  # of either kernel's name in the joint one's


def fuse_updates(extracted: Extracted, machine: Machine) -> Extracted:
    """The same step with fewer kernel calls. `machine` decides what rules can write."""
    joiner = _Joiner(extracted, machine)
    before = extracted.graph
    functions = {name: joined_ops(ops, before.tensors, joiner.join) for name, ops in before.functions.items()}
    used = dict.fromkeys(op.kernel for ops in functions.values() for op in ops)
    named = {n for ops in functions.values() for op in ops for n in (*op.reads, *op.writes)}
    tensors = {n: t for n, t in before.tensors.items() if n in named or not t.is_temporary}
    graph = replace(before, tensors=tensors, functions=functions)
    validate(graph)
    joint = sum(len(ops) - len(functions[name]) for name, ops in before.functions.items())
    log.info("%d weight updates are fused into the kernels of their gradients", joint)
    return replace(
        extracted,
        graph=graph,
        kernels=tuple(joiner.kernels[symbol] for symbol in used),
        traffic=_traffic(extracted.traffic, graph),
    )


def _traffic(before: Traffic | None, graph: TrainGraph) -> Traffic | None:
    return None if before is None else replace(before, moved_bytes=moved_bytes(graph.functions[STEP], graph.tensors))


def joined_ops(
    ops: Sequence[Op], tensors: Mapping[str, Tensor], join: Callable[[Op, Op, str], Op | None]
) -> tuple[Op, ...]:
    """The ops with each gradient moved into the update that alone reads it, where `join` makes one op of the two.

    `join` is asked with the gradient's op, the update's, and the tensor between them.
    """
    readers = Counter(name for op in ops for name in set(op.reads))
    writers: dict[str, int] = {}
    done: list[Op | None] = []
    for op in ops:
        is_update = bool(set(op.reads) & set(op.writes))
        for name in op.reads if is_update else ():
            if not tensors[name].is_temporary or readers[name] > 1:
                continue
            place = writers[name]
            gradient = done[place]
            if gradient is None or not _can_wait(gradient, done[place + 1 :], op):
                continue
            joint = join(gradient, op, name)
            if joint is not None:
                done[place], op = None, joint
                break
        writers |= dict.fromkeys(op.writes, len(done))
        done.append(op)
    return tuple(op for op in done if op is not None)


def _can_wait(gradient: Op, between: Sequence[Op | None], update: Op) -> bool:
    """Whether the gradient may be computed in the update's place, while the weight is written over."""
    written = {name for op in between if op is not None for name in op.writes}
    return len(gradient.writes) == 1 and not set(gradient.reads) & (written | set(update.writes))


@dataclass
class _Joiner:
    """Makes joint kernels, each once. `kernels` are all there are, by symbol."""

    extracted: Extracted
    machine: Machine
    kernels: dict[str, Kernel] = field(init=False)
    _joint: dict[tuple[str, str, int], Kernel | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernels = {kernel.symbol: kernel for kernel in self.extracted.kernels}

    def join(self, gradient: Op, update: Op, name: str) -> Op | None:
        """Both as one op; None where no rule would gain from it."""
        position = update.reads.index(name)
        reads = (*gradient.reads, *(read for read in update.reads if read != name))
        key = (gradient.kernel, update.kernel, position)
        if key not in self._joint:
            self._joint[key] = self._kernel(*key, aliases=aliases_of(reads, update.writes))
        kernel = self._joint[key]
        if kernel is None:
            return None
        self.kernels[kernel.symbol] = kernel
        return replace(
            update,
            name=gradient.name,
            kernel=kernel.symbol,
            reads=reads,
            flops=gradient.flops + update.flops,
            source=f"{gradient.source.split(' of ')[0]}, {update.source}",
        )

    def _kernel(self, gradient: str, update: str, position: int, *, aliases: Aliases) -> Kernel | None:
        first, second = self.kernels[gradient], self.kernels[update]
        if first.aliases or _type(first.function.params[-1]) != _type(second.function.params[position]):
            return None
        function = joint_function(
            first.function, second.function, position, outputs=len({w for _, w in second.aliases})
        )
        if not rules.writes_by_element(function, self.machine):
            return None
        return Kernel(symbol=f"{gradient[:_LONGEST]}_{update[:_LONGEST]}", function=function, aliases=aliases)


def _type(parameter: Any) -> tuple[tuple[int, ...], str]:
    return tuple(int(extent) for extent in parameter.ty.shape), str(parameter.ty.dtype)


def joint_function(first: Any, second: Any, position: int, *, outputs: int) -> Any:
    """A PrimFunc of what `first` reads, then what else `second` reads, then `second`'s last `outputs` parameters.

    The one result of `first` is the parameter of `second` at `position`.
    """

    def tensor_type(parameter: Any) -> Any:
        shape, dtype = _type(parameter)
        return relax.TensorType(shape, dtype)

    *first_types, between = map(tensor_type, first.params)
    types = list(map(tensor_type, second.params))
    types, results = types[:-outputs], types[-outputs:]
    builder = relax.BlockBuilder()
    callees = [builder.add_func(f.without_attr("global_symbol"), n) for f, n in ((first, "first"), (second, "second"))]
    given = [relax.Var(f"a{n}", ty) for n, ty in enumerate(first_types)]
    more = [relax.Var(f"b{n}", ty) for n, ty in enumerate(types) if n != position]
    with builder.function("joint", [*given, *more], attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            value = builder.emit(relax.call_tir(callees[0], given, between))
            arguments = [*more[:position], value, *more[position:]]
            made = builder.emit_output(relax.call_tir(callees[1], arguments, results if outputs > 1 else results[0]))
        builder.emit_func_output(made)
    joint = builder.get().get_global_var("joint")
    variables = [relax.Var(f"c{n}", variable.ty) for n, variable in enumerate((*given, *more))]
    with builder.function("main", variables):
        with builder.dataflow():
            made = builder.emit_output(relax.Call(joint, variables))
        builder.emit_func_output(made)
    module = relax.transform.FuseTIR()(builder.get())
    (function,) = (f for g, f in module.functions.items() if g.name_hint == "joint" and isinstance(f, PrimFunc))
    return function.without_attr("global_symbol")
