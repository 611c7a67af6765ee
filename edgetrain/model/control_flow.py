"""Resolves `If`, `Loop` and `Scan` before compilation: takes the known branch, unrolls the body."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain._tvm import relax, shape_of
from edgetrain.model.converters import CannotConvert, NodeContext
from edgetrain.model.converters.layout import slice_axis
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


def unroll_scan(context: NodeContext, run: RunBody) -> list[Any]:
    """The scan's last state, then its outputs, each joined along the axis and in the direction it asks for."""
    if context.opset < 9:
        raise CannotConvert(
            "its first version has a batch dimension of its own; export the model with opset 9 or later"
        )
    body = body_of(context.node, "body")
    count = int(context.attribute("num_scan_inputs", 0))
    split = len(context.values) - count
    if split < 0 or not all(map(context.has, range(len(body.input)))) or len(body.input) != len(context.values):
        raise CannotConvert("its body does not take what it carries and scans")
    carried, scanned = list(context.values[:split]), _Scanned.of(context, context.values[split:])
    results: list[list[Any]] = [[] for _ in range(len(body.output) - split)]
    for step in range(scanned.steps):
        values = [*carried, *scanned.elements(context, step)]
        outputs = run(body, dict(zip([i.name for i in body.input], values, strict=True)))
        if any(isinstance(value, Missing) for value in outputs):
            return [MISSING] * len(outputs)
        carried = outputs[:split]
        for parts, value in zip(results, outputs[split:], strict=True):
            parts.append(value)
    axes, backwards = (_for_each(context, f"scan_output_{what}", len(results)) for what in ("axes", "directions"))
    ordered = [parts[::-1] if back else parts for parts, back in zip(results, backwards, strict=True)]
    return [*carried, *(_stacked(context, p, axis) for p, axis in zip(ordered, axes, strict=True))]


@dataclass(frozen=True, kw_only=True)
class _Scanned:
    """The tensors that a scan walks along: `axes[i]` of tensor i, from its end where `backwards[i]`."""

    tensors: tuple[Any, ...]
    axes: tuple[int, ...]
    backwards: tuple[int, ...]
    steps: int

    @classmethod
    def of(cls, context: NodeContext, values: Sequence[Any]) -> _Scanned:
        tensors = tuple(context.resolver.tensor(value) for value in values)
        asked = _for_each(context, "scan_input_axes", len(tensors))
        axes = tuple(a % len(shape_of(t)) for a, t in zip(asked, tensors, strict=True))
        lengths = {shape_of(t)[a] for a, t in zip(axes, tensors, strict=True)}
        if len(lengths) != 1:
            raise CannotConvert(f"it scans tensors of different lengths, {sorted(lengths)}")
        if (steps := lengths.pop()) > MAXIMUM_UNROLLED_STEPS:
            raise CannotConvert(f"it runs {steps} times; at most {MAXIMUM_UNROLLED_STEPS} are unrolled")
        backwards = _for_each(context, "scan_input_directions", len(tensors))
        return cls(tensors=tensors, axes=axes, backwards=backwards, steps=steps)

    def elements(self, context: NodeContext, step: int) -> list[Any]:
        """What the body gets of each tensor, without the scanned axis."""
        found = []
        for tensor, axis, back in zip(self.tensors, self.axes, self.backwards, strict=True):
            thin = slice_axis(context, tensor, axis, self.steps - 1 - step if back else step, 1)
            found.append(context.emit(relax.op.squeeze(thin, [axis])))
        return found


def _for_each(context: NodeContext, name: str, count: int) -> tuple[int, ...]:
    given = tuple(int(v) for v in context.attribute(name, [0] * count))
    if len(given) != count:
        raise CannotConvert(f"its `{name}` has {len(given)} values for {count} tensors")
    return given


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


def _stacked(context: NodeContext, parts: Sequence[Any], axis: int = 0) -> Any:
    """`parts` along a new axis."""
    if not parts:
        raise CannotConvert("it runs no times, so its scan outputs are empty")
    known = [context.resolver.known(part) if isinstance(part, Stored) else None for part in parts]
    arrays = [array for array in known if array is not None]
    if len(arrays) == len(parts):
        return Stored("stacked", np.stack(arrays, axis))
    tensors = [context.resolver.tensor(part) for part in parts]
    place = axis % (len(shape_of(tensors[0])) + 1)
    rows = [context.emit(relax.op.expand_dims(tensor, place)) for tensor in tensors]
    return rows[0] if len(rows) == 1 else context.emit(relax.op.concat(rows, place))
