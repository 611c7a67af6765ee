"""Reductions along axes that are an attribute or, in newer opsets, an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgetrain._tvm import relax, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext

Reduce = Callable[[NodeContext, Any, list[int], bool], Any]  # (context, data, axes, keepdims)


def _reduction(reduce: Reduce) -> Converter:
    def convert(context: NodeContext) -> Any:
        data = context.input(0)
        rank = len(shape_of(data))
        axes = context.integers_or_attribute(1, "axes")
        if not axes and context.attribute("noop_with_empty_axes", 0):
            return data
        resolved = sorted(a % rank for a in axes) if axes else list(range(rank))
        return reduce(context, data, resolved, bool(context.attribute("keepdims", 1)))

    return convert


def _plain(emit_reduction: Callable[..., Any]) -> Reduce:
    return lambda context, data, axes, keep: context.emit(emit_reduction(data, axes, keepdims=keep))


def _sum_of(emit_first: Callable[[Any], Any]) -> Reduce:
    def reduce(context: NodeContext, data: Any, axes: list[int], keep: bool) -> Any:
        return context.emit(relax.op.sum(context.emit(emit_first(data)), axes, keepdims=keep))

    return reduce


def _then(reduce: Reduce, emit_last: Callable[[Any], Any]) -> Reduce:
    return lambda context, data, axes, keep: context.emit(emit_last(reduce(context, data, axes, keep)))


def _log_sum_exp(context: NodeContext, data: Any, axes: list[int], keep: bool) -> Any:
    """Shifted by the maximum, or large inputs overflow."""
    top = context.emit(relax.op.max(data, axes, keepdims=True))
    shifted = context.emit(relax.op.exp(context.emit(relax.op.subtract(data, top))))
    total = context.emit(relax.op.log(context.emit(relax.op.sum(shifted, axes, keepdims=True))))
    result = context.emit(relax.op.add(total, top))
    return result if keep else context.emit(relax.op.squeeze(result, axes))


def _cumsum(context: NodeContext) -> Any:
    data, axes = context.input(0), context.integers(1, "axis")
    if axes is None or len(axes) != 1:
        raise CannotConvert("its axis must be one constant")
    axis, backwards = axes[0] % len(shape_of(data)), bool(context.attribute("reverse", 0))
    data = context.emit(relax.op.flip(data, axis)) if backwards else data
    total = context.emit(relax.op.cumsum(data, axis, exclusive=bool(context.attribute("exclusive", 0))))
    return context.emit(relax.op.flip(total, axis)) if backwards else total


REDUCTION_CONVERTERS: Mapping[str, Converter] = {
    "CumSum": _cumsum,
    "ReduceL1": _reduction(_sum_of(relax.op.abs)),
    "ReduceL2": _reduction(_then(_sum_of(relax.op.square), relax.op.sqrt)),
    "ReduceLogSum": _reduction(_then(_plain(relax.op.sum), relax.op.log)),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(_plain(relax.op.max)),
    "ReduceMean": _reduction(_plain(relax.op.mean)),
    "ReduceMin": _reduction(_plain(relax.op.min)),
    "ReduceProd": _reduction(_plain(relax.op.prod)),
    "ReduceSum": _reduction(_plain(relax.op.sum)),
    "ReduceSumSquare": _reduction(_sum_of(relax.op.square)),
}
