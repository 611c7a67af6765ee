"""Layer, group, instance and RMS normalisation: one formula over different groups of elements.

Every element belongs to one group, whose mean and deviation normalise it, and to one pair of learned scale and shift.
The backward pass starts from the groups' statistics, so no normalised copy of the data is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import constant_like, shape_of, te, tirx
from edgetrain.graph.gradients.rule import Backward, Done, Forward, Gradients, Rule

Index = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Which elements share statistics, and which share a scale and a shift."""

    shape: tuple[int, ...]
    groups: tuple[int, ...]  # shape of the statistics
    group_of: Callable[[Index], Index]
    within: tuple[int, ...]  # extents of the loops over one group
    member: Callable[[Index, Index], Index]  # (group, place within it) -> element
    parameter_axes: tuple[int, ...]  # the axes of the data that index the scale and the shift
    centred: bool = True  # whether the mean is subtracted: not in RMSNorm

    @property
    def count(self) -> int:
        return math.prod(self.within)

    def parameter_of(self, index: Index) -> Index:
        return tuple(index[a] for a in self.parameter_axes)

    def sum_groups(self, name: str, element: Callable[[Index], Any]) -> Any:
        """Σ of `element` over each group."""
        loops = [te.reduce_axis((0, extent), f"w{i}") for i, extent in enumerate(self.within)]
        return te.compute(self.groups, lambda *g: te.sum(element(self.member(g, tuple(loops))), axis=loops), name=name)

    def sum_parameters(self, name: str, element: Callable[[Index], Any]) -> Any:
        """Σ of `element` over all elements that share a scale."""
        others = [a for a in range(len(self.shape)) if a not in self.parameter_axes]
        loops = {a: te.reduce_axis((0, self.shape[a]), f"a{a}") for a in others}

        def total(*parameter: Any) -> Any:
            own = dict(zip(self.parameter_axes, parameter, strict=True))
            index = tuple(own[a] if a in own else loops[a] for a in range(len(self.shape)))
            return te.sum(element(index), axis=list(loops.values()))

        return te.compute(tuple(self.shape[a] for a in self.parameter_axes), total, name=name)


def over_axes(shape: tuple[int, ...], axes: Sequence[int], *, centred: bool = True) -> Grouping:
    """LayerNorm's groups: everything along `axes`, which also index the parameters."""
    inner = tuple(sorted(a % len(shape) for a in axes))
    outer = tuple(a for a in range(len(shape)) if a not in inner)

    def member(group: Index, place: Index) -> Index:
        values = dict(zip((*outer, *inner), (*group, *place), strict=True))
        return tuple(values[a] for a in range(len(shape)))

    return Grouping(
        shape=shape,
        groups=tuple(shape[a] for a in outer),
        group_of=lambda index: tuple(index[a] for a in outer),
        within=tuple(shape[a] for a in inner),
        member=member,
        parameter_axes=inner,
        centred=centred,
    )


def over_channels(shape: tuple[int, ...], groups: int) -> Grouping:
    """GroupNorm's groups, channels on axis 1: `groups` runs of neighbouring channels of each sample."""
    size = shape[1] // groups
    return Grouping(
        shape=shape,
        groups=(shape[0], groups),
        group_of=lambda index: (index[0], tirx.floordiv(index[1], size) if size > 1 else index[1]),
        within=(size, *shape[2:]),
        member=lambda group, place: (group[0], group[1] * size + place[0], *place[1:]),
        parameter_axes=(1,),
    )


def group_mean(x: Any, *, grouping: Grouping) -> Any:
    total = grouping.sum_groups("group_sum", lambda i: x[i])
    return te.compute(grouping.groups, lambda *g: total[g] * constant_like(1.0 / grouping.count, x), name="group_mean")


def group_deviation_inverse(x: Any, *mean: Any, grouping: Grouping, epsilon: float) -> Any:
    """1 / √(Σ (x − mean)² / n + ε)"""

    def square(i: Index) -> Any:
        return _centre(x, mean, grouping, i) * _centre(x, mean, grouping, i)

    total = grouping.sum_groups("group_squares", square)

    def inverse(*g: Any) -> Any:
        spread = total[g] * constant_like(1.0 / grouping.count, x) + constant_like(epsilon, x)
        return constant_like(1.0, x) / tirx.sqrt(spread)

    return te.compute(grouping.groups, inverse, name="group_deviation_inverse")


def _centre(x: Any, mean: Sequence[Any], grouping: Grouping, i: Index) -> Any:
    return x[i] - mean[0][grouping.group_of(i)] if mean else x[i]


def group_norm_apply(x: Any, inverse: Any, gamma: Any, *rest: Any, grouping: Grouping) -> Any:
    """`rest` is the mean and the shift; RMSNorm has neither."""
    mean, beta = rest[:1], rest[1:]

    def element(*i: Any) -> Any:
        p = grouping.parameter_of(i)
        scaled = _centre(x, mean, grouping, i) * inverse[grouping.group_of(i)] * gamma[p]
        return scaled + beta[0][p] if beta else scaled

    return te.compute(x.shape, element, name="group_norm_apply")


@dataclass(frozen=True, slots=True)
class _Statistics:
    grouping: Grouping
    mean: tuple[Any, ...]  # empty for RMSNorm
    inverse: Any


def _forward(step: Forward, grouping: Grouping) -> Done:
    x, gamma, *beta = step.inputs
    mean = (step.emit_te(group_mean, x, grouping=grouping),) if grouping.centred else ()
    epsilon = float(step.attributes.epsilon)
    inverse = step.emit_te(group_deviation_inverse, x, *mean, grouping=grouping, epsilon=epsilon)
    y = step.emit_te(group_norm_apply, x, inverse, gamma, *mean, *beta, grouping=grouping)
    return Done(outputs=(y,), residuals=_Statistics(grouping, mean, inverse))


def scale_gradient(dy: Any, x: Any, inverse: Any, *mean: Any, grouping: Grouping) -> Any:
    """Σ dY · x̂, for each learned scale."""

    def element(i: Index) -> Any:
        return dy[i] * _centre(x, mean, grouping, i) * inverse[grouping.group_of(i)]

    return grouping.sum_parameters("scale_gradient", element)


def shift_gradient(dy: Any, *, grouping: Grouping) -> Any:
    return grouping.sum_parameters("shift_gradient", lambda i: dy[i])


def group_pull(dy: Any, gamma: Any, *, grouping: Grouping) -> Any:
    """Mean of dY · γ over a group: what the group's mean gives back."""
    total = grouping.sum_groups("pull_sum", lambda i: dy[i] * gamma[grouping.parameter_of(i)])
    return te.compute(grouping.groups, lambda *g: total[g] * constant_like(1.0 / grouping.count, dy), name="group_pull")


def group_stretch(dy: Any, gamma: Any, x: Any, inverse: Any, *mean: Any, grouping: Grouping) -> Any:
    """Mean of dY · γ · x̂ over a group: what the group's deviation gives back."""

    def element(i: Index) -> Any:
        return dy[i] * gamma[grouping.parameter_of(i)] * _centre(x, mean, grouping, i)

    total = grouping.sum_groups("stretch_sum", element)
    share = constant_like(1.0 / grouping.count, dy)
    return te.compute(grouping.groups, lambda *g: total[g] * inverse[g] * share, name="group_stretch")


def group_norm_data_gradient(
    dy: Any, gamma: Any, x: Any, inverse: Any, stretch: Any, *rest: Any, grouping: Grouping
) -> Any:
    """(dY · γ − pull − x̂ · stretch) / deviation; `rest` is the mean and the pull, absent in RMSNorm."""
    mean, pull = rest[:1], rest[1:]

    def element(*i: Any) -> Any:
        g = grouping.group_of(i)
        normal = _centre(x, mean, grouping, i) * inverse[g]
        kept = dy[i] * gamma[grouping.parameter_of(i)] - normal * stretch[g]
        return (kept - pull[0][g] if pull else kept) * inverse[g]

    return te.compute(x.shape, element, name="group_norm_data_gradient")


def _backward(step: Backward) -> Gradients:
    x, gamma, *beta = step.inputs
    statistics: _Statistics = step.residuals
    grouping, mean, inverse = statistics.grouping, statistics.mean, statistics.inverse
    dy = step.output_gradient
    results: list[Any] = [None] * len(step.inputs)
    if step.wanted[1]:
        results[1] = step.emit_te(scale_gradient, dy, x, inverse, *mean, grouping=grouping)
    if beta and step.wanted[2]:
        results[2] = step.emit_te(shift_gradient, dy, grouping=grouping)
    if step.wanted[0]:
        stretch = step.emit_te(group_stretch, dy, gamma, x, inverse, *mean, grouping=grouping)
        pull = (step.emit_te(group_pull, dy, gamma, grouping=grouping),) if grouping.centred else ()
        results[0] = step.emit_te(
            group_norm_data_gradient, dy, gamma, x, inverse, stretch, *mean, *pull, grouping=grouping
        )
    return results


def _layer_groups(step: Forward) -> Grouping:
    return over_axes(shape_of(step.inputs[0]), [int(a) for a in step.attributes.axes])


def _rms_groups(step: Forward) -> Grouping:
    return over_axes(shape_of(step.inputs[0]), [int(a) for a in step.attributes.axes], centred=False)


def _channel_groups(step: Forward) -> Grouping:
    return over_channels(shape_of(step.inputs[0]), int(step.attributes.num_groups))


def _instance_groups(step: Forward) -> Grouping:
    shape = shape_of(step.inputs[0])
    return over_channels(shape, shape[1])


def _rule(groups: Callable[[Forward], Grouping]) -> Rule:
    return Rule(forward=lambda step: _forward(step, groups(step)), backward=_backward)


GROUP_NORM_RULES: Mapping[str, Rule] = {
    "relax.nn.group_norm": _rule(_channel_groups),
    "relax.nn.instance_norm": _rule(_instance_groups),
    "relax.nn.layer_norm": _rule(_layer_groups),
    "relax.nn.rms_norm": _rule(_rms_groups),
}
