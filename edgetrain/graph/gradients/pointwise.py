"""How an elementwise op's gradient is one more elementwise op: dX = slope · dY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgetrain._tvm import constant_like, te
from edgetrain.graph.gradients.rule import Backward, Expr, Gradients, Rule

Slope = Callable[[Any], Any]  # of one element, as a TIR expression


def from_output(name: str, slope: Slope) -> Rule:
    """The slope as a function of the op's output: its input need not be kept for the backward pass."""
    return Rule(backward=lambda step: _scaled(step, name, slope, step.outputs[0]))


def from_input(name: str, slope: Slope, *, fusible: bool = True) -> Rule:
    """`fusible=False`: a kernel of its own, whatever stands before it."""
    return Rule(backward=lambda step: _scaled(step, name, slope, step.inputs[0], fusible=fusible))


def _scaled(step: Backward, name: str, slope: Slope, kept: Expr, *, fusible: bool = True) -> Gradients:
    rest = [None] * (len(step.inputs) - 1)
    return [scale_gradient(step, name, slope, kept, fusible=fusible), *rest]


def scale_gradient(step: Backward, name: str, slope: Slope, kept: Expr, *, fusible: bool = True) -> Expr:
    """slope(kept) · dY, element by element."""

    def gradient(value: Any, dy: Any) -> Any:
        return te.compute(dy.shape, lambda *i: slope(value[i]) * dy[i], name=f"{name}_gradient")

    gradient.__name__ = f"{name}_gradient"  # emit_te names the kernel after it
    return step.emit_te(gradient, kept, step.output_gradient, fusible=fusible)


def flat(_step: Backward) -> Gradients:
    """For steps such as floor and sign: the derivative is zero wherever it exists."""
    return [None] * len(_step.inputs)


def number(value: float, like: Any) -> Any:
    """A constant of the type of `like`, a TIR expression."""
    return constant_like(value, like)
