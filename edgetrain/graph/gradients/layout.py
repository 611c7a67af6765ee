"""Ops that move elements without changing them: views, joins, slices and repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgetrain._tvm import relax, shape_of, te, tirx
from edgetrain.errors import UnsupportedError
from edgetrain.graph.gradients.rule import Backward, Expr, Gradients, Rule, sum_to_shape, zeros_like
from edgetrain.graph.gradients.window import guarded


def _rest(step: Backward) -> list[None]:
    return [None] * (len(step.inputs) - 1)


def _reshape(step: Backward) -> Gradients:
    return [step.emit(relax.op.reshape(step.output_gradient, shape_of(step.inputs[0]))), *_rest(step)]


def _permute_dims(step: Backward) -> Gradients:
    rank = len(shape_of(step.inputs[0]))
    axes = step.attributes.axes
    order = list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]
    inverse = [order.index(a) for a in range(rank)]
    return [step.emit(relax.op.permute_dims(step.output_gradient, inverse))]


def _broadcast_to(step: Backward) -> Gradients:
    return [sum_to_shape(step, step.output_gradient, step.inputs[0]), *_rest(step)]


def _slice_axis(step: Backward, expr: Expr, axis: int, begin: int, end: int) -> Expr:
    return step.emit(relax.op.strided_slice(expr, [axis], [begin], [end]))


def _concat(step: Backward) -> Gradients:
    parts = list(step.inputs[0].fields)
    axis = int(step.attributes.axis or 0) % len(shape_of(parts[0]))
    gradients, begin = [], 0
    for part in parts:
        end = begin + shape_of(part)[axis]
        gradients.append(_slice_axis(step, step.output_gradient, axis, begin, end))
        begin = end
    return [gradients]


def _stack(step: Backward) -> Gradients:
    parts = list(step.inputs[0].fields)
    axis = int(step.attributes.axis or 0) % (len(shape_of(parts[0])) + 1)
    slices = [_slice_axis(step, step.output_gradient, axis, i, i + 1) for i in range(len(parts))]
    return [[step.emit(relax.op.reshape(s, shape_of(p))) for s, p in zip(slices, parts, strict=True)]]


def _split(step: Backward) -> Gradients:
    axis = int(step.attributes.axis) % len(shape_of(step.inputs[0]))
    pairs = zip(step.output_gradients, step.outputs, strict=True)
    parts = [zeros_like(step, output) if gradient is None else gradient for gradient, output in pairs]
    return [step.emit(relax.op.concat(parts, axis))]


def _integers(expr: Any) -> list[int]:
    return [int(getattr(field, "value", field)) for field in expr.fields]


def _strided_slice(step: Backward) -> Gradients:
    shape = shape_of(step.inputs[0])
    axes, begins = (_integers(step.inputs[i]) for i in (1, 2))
    strides = _integers(step.inputs[4]) if len(step.inputs) > 4 else [1] * len(axes)
    cuts = {
        axis % len(shape): (_first(begin, shape[axis % len(shape)], stride), stride)
        for axis, begin, stride in zip(axes, begins, strides, strict=True)
    }

    def strided_slice_gradient(dy: Any) -> Any:
        outputs = shape_of(dy)

        def element(*index: Any) -> Any:
            guards: list[Any] = []
            places = list(index)
            for axis, (first, stride) in cuts.items():
                offset = index[axis] - first if stride > 0 else first - index[axis]
                step_size = abs(stride)
                place = tirx.floordiv(offset, step_size) if step_size > 1 else offset
                guards += [place >= 0, place < outputs[axis]]
                guards += [tirx.floormod(offset, step_size) == 0] if step_size > 1 else []
                places[axis] = place
            return guarded(guards, dy[tuple(places)])

        return te.compute(shape, element)

    return [step.emit_te(strided_slice_gradient, step.output_gradient), *_rest(step)]


def _first(begin: int, size: int, stride: int) -> int:
    """Where a slice starts, with negative and overlong bounds resolved as in NumPy."""
    begin = begin + size if begin < 0 else begin
    return min(max(begin, 0), size) if stride > 0 else min(max(begin, -1), size - 1)


def _pad(step: Backward) -> Gradients:
    if str(step.attributes.pad_mode) != "constant":
        raise UnsupportedError(
            f"padding in mode `{step.attributes.pad_mode}` has no gradient",
            fix="use constant padding, or train after it",
        )
    shape = shape_of(step.inputs[0])
    begins = [int(p) for p in step.attributes.pad_width][::2]
    gradient = step.output_gradient
    axes = [a for a, extent in enumerate(shape) if extent != shape_of(gradient)[a]]
    if axes:
        first, last = [begins[a] for a in axes], [begins[a] + shape[a] for a in axes]
        gradient = step.emit(relax.op.strided_slice(gradient, axes, first, last))
    return [gradient]


def _flip(step: Backward) -> Gradients:
    return [step.emit(relax.op.flip(step.output_gradient, int(step.attributes.axis)))]


def _sum_repeats(step: Backward, interleaved: Sequence[int], axes: Sequence[int]) -> Gradients:
    """Views dY with every repeat on an axis of its own, and sums those."""
    view = step.emit(relax.op.reshape(step.output_gradient, list(interleaved)))
    total = step.emit(relax.op.sum(view, list(axes)))
    return [step.emit(relax.op.reshape(total, shape_of(step.inputs[0])))]


def _tile(step: Backward) -> Gradients:
    shape, outputs = shape_of(step.inputs[0]), shape_of(step.output_gradient)
    padded = (1,) * (len(outputs) - len(shape)) + shape
    interleaved = [n for size, total in zip(padded, outputs, strict=True) for n in (total // size, size)]
    return _sum_repeats(step, interleaved, range(0, len(interleaved), 2))


def _repeat(step: Backward) -> Gradients:
    shape, repeats = shape_of(step.inputs[0]), int(step.attributes.repeats)
    if step.attributes.axis is None:
        return _sum_repeats(step, [*shape, repeats], [len(shape)])
    axis = int(step.attributes.axis) % len(shape)
    return _sum_repeats(step, [*shape[: axis + 1], repeats, *shape[axis + 1 :]], [axis + 1])


def _triangle(emit_triangle: Any) -> Rule:
    """The gradient of a triangle is the same triangle of the gradient."""

    def backward(step: Backward) -> Gradients:
        return [step.emit(emit_triangle(step.output_gradient, step.inputs[1])), None]

    return Rule(backward=backward)


LAYOUT_RULES: Mapping[str, Rule] = {
    "relax.broadcast_to": Rule(backward=_broadcast_to),
    "relax.concat": Rule(backward=_concat),
    "relax.expand_dims": Rule(backward=_reshape),
    "relax.flatten": Rule(backward=_reshape),
    "relax.flip": Rule(backward=_flip),
    "relax.nn.batch_flatten": Rule(backward=_reshape),
    "relax.nn.pad": Rule(backward=_pad),
    "relax.permute_dims": Rule(backward=_permute_dims),
    "relax.repeat": Rule(backward=_repeat),
    "relax.reshape": Rule(backward=_reshape),
    "relax.split": Rule(backward=_split),
    "relax.squeeze": Rule(backward=_reshape),
    "relax.stack": Rule(backward=_stack),
    "relax.strided_slice": Rule(backward=_strided_slice),
    "relax.tile": Rule(backward=_tile),
    "relax.tril": _triangle(relax.op.tril),
    "relax.triu": _triangle(relax.op.triu),
}
