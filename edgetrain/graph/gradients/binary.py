"""Elementwise functions of two tensors that broadcast. Where two values tie for a maximum, each gets half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgetrain._tvm import relax, te, tirx
from edgetrain.graph.gradients.pointwise import number
from edgetrain.graph.gradients.rule import Backward, Expr, Gradients, Rule, sum_to_shape

Side = Callable[[Backward], Expr]  # the gradient of one operand, before repeated axes are summed


def _pair(left: Side, right: Side) -> Rule:
    def backward(step: Backward) -> Gradients:
        sides = zip((left, right), step.inputs, step.wanted, strict=True)
        return [sum_to_shape(step, side(step), operand) if wanted else None for side, operand, wanted in sides]

    return Rule(backward=backward)


def _pass_on(step: Backward) -> Expr:
    return step.output_gradient


def _times(index: int) -> Side:
    return lambda step: step.emit(relax.op.multiply(step.output_gradient, step.inputs[index]))


def _minus(step: Backward) -> Expr:
    return step.emit(relax.op.negative(step.output_gradient))


def _over_right(step: Backward) -> Expr:
    return step.emit(relax.op.divide(step.output_gradient, step.inputs[1]))


def _denominator(step: Backward) -> Expr:
    """−dY · Y / B: from the output, so that the numerator need not be kept."""
    share = step.emit(relax.op.divide(step.outputs[0], step.inputs[1]))
    return step.emit(relax.op.negative(step.emit(relax.op.multiply(step.output_gradient, share))))


def _picked(index: int, name: str) -> Side:
    """For maximum and minimum: dY where this operand is the result, half of it where both are."""

    def pick_gradient(y: Any, other: Any, mine: Any, dy: Any) -> Any:
        def element(*i: Any) -> Any:
            zero, half = number(0.0, dy[i]), number(0.5, dy[i]) * dy[i]
            mine_i, other_i = mine[_clamped(i, mine)], other[_clamped(i, other)]
            return tirx.Select(mine_i == y[i], tirx.Select(other_i == y[i], half, dy[i]), zero)

        return te.compute(y.shape, element)

    pick_gradient.__name__ = f"{name}_gradient"
    return lambda step: step.emit_te(
        pick_gradient, step.outputs[0], step.inputs[1 - index], step.inputs[index], step.output_gradient
    )


def _clamped(index: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    """Where an output element reads an operand that was broadcast."""
    trailing = index[len(index) - len(operand.shape) :]
    return tuple(0 if int(extent) == 1 else i for i, extent in zip(trailing, operand.shape, strict=True))


def _base(step: Backward) -> Expr:
    base, exponent = step.inputs
    one = relax.const(1.0, str(base.ty.dtype))
    lowered = step.emit(relax.op.power(base, step.emit(relax.op.subtract(exponent, one))))
    return step.emit(relax.op.multiply(step.output_gradient, step.emit(relax.op.multiply(exponent, lowered))))


def _exponent(step: Backward) -> Expr:
    """dY · Y · log A; 0 where A is not positive: there the power is constant (0) or not differentiable."""

    def power_exponent_gradient(base: Any, y: Any, dy: Any) -> Any:
        def element(*i: Any) -> Any:
            a = base[_clamped(i, base)]
            safe = tirx.Select(a > number(0.0, a), a, number(1.0, a))
            return dy[i] * y[i] * tirx.log(safe)

        return te.compute(y.shape, element)

    return step.emit_te(power_exponent_gradient, step.inputs[0], step.outputs[0], step.output_gradient)


BINARY_RULES: Mapping[str, Rule] = {
    "relax.add": _pair(_pass_on, _pass_on),
    "relax.divide": _pair(_over_right, _denominator),
    "relax.maximum": _pair(_picked(0, "maximum"), _picked(1, "maximum")),
    "relax.minimum": _pair(_picked(0, "minimum"), _picked(1, "minimum")),
    "relax.multiply": _pair(_times(1), _times(0)),
    "relax.power": _pair(_base, _exponent),
    "relax.subtract": _pair(_pass_on, _minus),
}
