"""Elementwise functions of one tensor, from the output where the derivative allows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import dtype_of, relax, tirx
from edgetrain.graph.gradients.pointwise import flat, from_input, from_output, number
from edgetrain.graph.gradients.rule import Backward, Gradients, Rule


def sign(x: Any) -> Any:
    zero, one = number(0.0, x), number(1.0, x)
    return tirx.Select(x > zero, one, tirx.Select(x < zero, number(-1.0, x), zero))


def _erf_slope(x: Any) -> Any:
    return number(2.0 / math.sqrt(math.pi), x) * tirx.exp(number(0.0, x) - x * x)


def _inverse_sqrt(x: Any) -> Any:
    return number(1.0, x) / tirx.sqrt(x)


def _negative(step: Backward) -> Gradients:
    return [step.emit(relax.op.negative(step.output_gradient))]


def _astype(step: Backward) -> Gradients:
    return [step.emit(relax.op.astype(step.output_gradient, dtype_of(step.inputs[0])))]


UNARY_RULES: Mapping[str, Rule] = {
    "relax.abs": from_input("abs", sign),
    "relax.acos": from_input("acos", lambda x: number(-1.0, x) * _inverse_sqrt(number(1.0, x) - x * x)),
    "relax.acosh": from_input("acosh", lambda x: _inverse_sqrt(x * x - number(1.0, x))),
    "relax.asin": from_input("asin", lambda x: _inverse_sqrt(number(1.0, x) - x * x)),
    "relax.asinh": from_input("asinh", lambda x: _inverse_sqrt(x * x + number(1.0, x))),
    "relax.astype": Rule(backward=_astype),
    "relax.atan": from_input("atan", lambda x: number(1.0, x) / (number(1.0, x) + x * x)),
    "relax.atanh": from_input("atanh", lambda x: number(1.0, x) / (number(1.0, x) - x * x)),
    "relax.ceil": Rule(backward=flat),
    "relax.cos": from_input("cos", lambda x: number(-1.0, x) * tirx.sin(x)),
    "relax.cosh": from_input("cosh", lambda x: (tirx.exp(x) - tirx.exp(number(0.0, x) - x)) * number(0.5, x)),
    "relax.erf": from_input("erf", _erf_slope),
    "relax.exp": from_output("exp", lambda y: y),
    "relax.floor": Rule(backward=flat),
    "relax.log": from_input("log", lambda x: number(1.0, x) / x),
    "relax.negative": Rule(backward=_negative),
    "relax.round": Rule(backward=flat),
    "relax.rsqrt": from_output("rsqrt", lambda y: number(-0.5, y) * y * y * y),
    "relax.sigmoid": from_output("sigmoid", lambda y: y * (number(1.0, y) - y)),
    "relax.sign": Rule(backward=flat),
    "relax.sin": from_input("sin", tirx.cos),
    "relax.sinh": from_input("sinh", lambda x: (tirx.exp(x) + tirx.exp(number(0.0, x) - x)) * number(0.5, x)),
    "relax.sqrt": from_output("sqrt", lambda y: number(0.5, y) / y),
    "relax.square": from_input("square", lambda x: x + x),
    "relax.tan": from_output("tan", lambda y: number(1.0, y) + y * y),
    "relax.tanh": from_output("tanh", lambda y: number(1.0, y) - y * y),
    "relax.trunc": Rule(backward=flat),
}
