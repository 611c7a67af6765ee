"""`If` and `Loop`, gone before anything is compiled: the branch that is taken, and the body as often as it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgetrain._tvm import relax, shape_of
from edgetrain.model.converters import CannotConvert, NodeContext
from edgetrain.model.scope import MISSING, Missing, Stored

MAXIMUM_UNROLLED_STEPS = 512  # a graph of so many copies still compiles in minutes

RunBody = Callable[[Any, Mapping[str, Any]], list[Any]]  # (GraphProto, values of its inputs) -> values of its outputs


def body_of(node: Any, name: str) -> Any:
    """The subgraph in the node's attribute. Raises `CannotConvert` where there is none."""
    for attribute in node.attribute:
        if attribute.name == name and attribute.HasField("g"):
            return attribute.g
    raise CannotConvert(f"it has no `{name}`")


def take_branch(context: NodeContext, run: RunBody) -> list[Any]:
    """The outputs of the branch that a constant condition chooses; of both, selected, where it depends on data."""
    condition = context.known_input(0)
    if condition is None:
        return _select(context, run)
    if condition.size != 1:
        raise CannotConvert(f"its condition has {condition.size} elements instead of one")
    return run(body_of(context.node, "then_branch" if condition.reshape(-1)[0] else "else_branch"), {})


def _select(context: NodeContext, run: RunBody) -> list[Any]:
    """Both branches, and each element from the one that its row's condition chooses. They have no side effects."""
    condition = context.required(0)
    size, batch = math.prod(shape_of(condition)), context.rebound_batch
    if size != 1 and not (size == batch == shape_of(condition)[0]):
        raise CannotConvert(f"its condition has {size} elements instead of one")
    results = []
    for taken, other in zip(*(run(body_of(context.node, f"{n}_branch"), {}) for n in ("then", "else")), strict=True):
        if isinstance(taken, Missing) or isinstance(other, Missing):
            results.append(MISSING)
            continue
        one, two = context.resolver.tensor(taken), context.resolver.tensor(other)
        shape = shape_of(one)
        if shape != shape_of(two) or (size > 1 and shape[:1] != (batch,)):
            raise CannotConvert("it depends on data, and its branches differ in shape")
        chosen = context.emit(relax.op.reshape(condition, (size, *[1] * (len(shape) - 1)) if shape else ()))
        results.append(context.emit(relax.op.where(chosen, one, two)))
    return results


def unroll_loop(context: NodeContext, run: RunBody) -> list[Any]:
    """The loop's last state, then its scan outputs, each stacked along a new first axis."""
    body = body_of(context.node, "body")
    count = _limit(context)
    carried = list(context.values[2:])
    if any(value is None for value in carried) or len(body.input) != len(carried) + 2:
        raise CannotConvert("its body does not take what it carries")
    scanned: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    goes_on = _truth(context, context.values[1] if context.has(1) else None)
    step = 0
    while goes_on and (count is None or step < count):
        if step == MAXIMUM_UNROLLED_STEPS:
            raise CannotConvert(f"it runs more than {MAXIMUM_UNROLLED_STEPS} times, the most that is unrolled")
        outputs = run(body, dict(zip([i.name for i in body.input], [*_counters(step), *carried], strict=True)))
        if any(isinstance(value, Missing) for value in outputs):
            return [MISSING] * (len(outputs) - 1)  # the node in the body that cannot be imported is reported
        goes_on = _truth(context, outputs[0])
        carried = outputs[1 : 1 + len(carried)]
        for parts, value in zip(scanned, outputs[1 + len(carried) :], strict=True):
            parts.append(value)
        step += 1
    return [*carried, *(_stacked(context, parts) for parts in scanned)]


def _counters(step: int) -> list[Stored]:
    return [Stored("iteration", np.array(step, np.int64)), Stored("condition", np.array(True))]


def _limit(context: NodeContext) -> int | None:
    limits = context.integers(0, "iterations")
    return None if not limits else limits[0]


def _truth(context: NodeContext, value: Any) -> bool:
    if value is None:
        return True
    known = context.resolver.known(value)
    if known is None or known.size != 1:
        raise CannotConvert("control flow that depends on data cannot be compiled ahead of time")
    return bool(known.reshape(-1)[0])


def _stacked(context: NodeContext, parts: Sequence[Any]) -> Any:
    if not parts:
        raise CannotConvert("it runs no times, so its scan outputs are empty")
    known = [context.resolver.known(part) if isinstance(part, Stored) else None for part in parts]
    arrays = [array for array in known if array is not None]
    if len(arrays) == len(parts):
        return Stored("stacked", np.stack(arrays))
    rows = [context.emit(relax.op.expand_dims(context.resolver.tensor(part), 0)) for part in parts]
    return rows[0] if len(rows) == 1 else context.emit(relax.op.concat(rows, 0))


def captured_names(node: Any) -> set[str]:
    """Names of the surrounding graph that the node's subgraphs read."""
    names: set[str] = set()
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names |= _free_names(attribute.g)
    return names


def _free_names(graph: Any) -> set[str]:
    made = {v.name for v in graph.input} | {i.name for i in graph.initializer}
    free: set[str] = set()
    for node in graph.node:
        free |= ({n for n in node.input if n} | captured_names(node)) - made
        made |= set(node.output)
    return free | ({o.name for o in graph.output} - made)
