"""Recognises activations that exporters write as several ops, and makes one op of them.

    GELU    x · (1 + erf(x / √2)) · ½        in any order of its factors
            x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) · ½
    SiLU    x · sigmoid(x)

As one op its gradient needs x alone; spelled out, each part of it is kept until the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import Constant, dtype_of, relax, shape_of
from edgetrain.model.converters.context import NodeContext, binary

_CLOSE = 1e-5  # relative: constants are rounded to float32, or to a few digits
_DEEPEST = 4  # products within products; what exporters write has two
_CUBIC = 0.044715


@dataclass(frozen=True)
class _Product:
    """Constants multiplied together, times the factors that are none."""

    constant: float
    factors: tuple[Any, ...]


def multiply(context: NodeContext) -> Any:
    """ONNX's `Mul`, or the activation that it completes. What was emitted for its parts is then dead code."""
    found = _activation(context) if dtype_of(context.required(0)) == "float32" else None
    return binary(relax.op.multiply)(context) if found is None else context.emit(found)


def _activation(context: NodeContext) -> Any | None:
    definitions = _Definitions(context.builder)
    one, two = (definitions.product(context.required(index)) for index in (0, 1))
    constant, factors = one.constant * two.constant, (*one.factors, *two.factors)
    if len(factors) != 2 or not shape_of(factors[0]):
        return None
    for x, gate in (factors, factors[::-1]):
        for wanted, matches, activation in _ACTIVATIONS:
            if _is_close(constant, wanted) and matches(definitions, x, gate):
                return activation(x)
    return None


class _Definitions:
    """What variables of the block that is being built stand for."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def call(self, value: Any, op: str) -> Any | None:
        """The call of that op which `value` is the result of."""
        if not isinstance(value, relax.DataflowVar):
            return None
        bound = self._builder.lookup_binding(value)
        is_wanted = isinstance(bound, relax.Call) and str(getattr(bound.op, "name", "")) == op
        return bound if is_wanted else None

    def product(self, value: Any, depth: int = _DEEPEST) -> _Product:
        number = _number(value)
        if number is not None:
            return _Product(number, ())
        multiplied, divided = self.call(value, "relax.multiply"), self.call(value, "relax.divide")
        if depth and multiplied is not None:
            one, two = (self.product(argument, depth - 1) for argument in multiplied.args)
            return _Product(one.constant * two.constant, (*one.factors, *two.factors))
        divisor = _number(divided.args[1]) if divided is not None else None
        if depth and divided is not None and divisor:
            dividend = self.product(divided.args[0], depth - 1)
            return _Product(dividend.constant / divisor, dividend.factors)
        return _Product(1.0, (value,))

    def sum_with_one(self, value: Any) -> Any | None:
        """What 1 was added to."""
        call = self.call(value, "relax.add")
        if call is None:
            return None
        for number, other in (call.args, list(call.args)[::-1]):
            if _number(number) == 1.0:
                return other
        return None

    def is_scaled(self, value: Any, x: Any, scale: float) -> bool:
        found = self.product(value)
        return _is_close(found.constant, scale) and len(found.factors) == 1 and found.factors[0].same_as(x)


def _number(value: Any) -> float | None:
    """The constant that `value` is, if it is one number. One of many axes would add axes to a product."""
    if not isinstance(value, Constant) or shape_of(value) not in ((), (1,)):
        return None
    return float(value.value.numpy().item())


def _is_close(found: float, wanted: float) -> bool:
    return math.isclose(found, wanted, rel_tol=_CLOSE)


def _is_erf_gate(definitions: _Definitions, x: Any, gate: Any) -> bool:
    call = definitions.call(definitions.sum_with_one(gate), "relax.erf")
    return call is not None and definitions.is_scaled(call.args[0], x, math.sqrt(0.5))


def _is_tanh_gate(definitions: _Definitions, x: Any, gate: Any) -> bool:
    call = definitions.call(definitions.sum_with_one(gate), "relax.tanh")
    if call is None:
        return False
    scaled = definitions.product(call.args[0])
    if not _is_close(scaled.constant, math.sqrt(2 / math.pi)) or len(scaled.factors) != 1:
        return False
    inner = definitions.call(scaled.factors[0], "relax.add")
    if inner is None:
        return False
    pairs = (inner.args, list(inner.args)[::-1])
    return any(one.same_as(x) and _is_cube(definitions, two, x) for one, two in pairs)


def _is_cube(definitions: _Definitions, value: Any, x: Any) -> bool:
    """0.044715 x³; its converter writes a cube as a square times x."""
    found = definitions.product(value)
    if not _is_close(found.constant, _CUBIC):
        return False
    powers = 0
    for factor in found.factors:
        square = definitions.call(factor, "relax.square")
        if square is not None and square.args[0].same_as(x):
            powers += 2
        elif factor.same_as(x):
            powers += 1
        else:
            return False
    return powers == 3


def _is_sigmoid(definitions: _Definitions, x: Any, gate: Any) -> bool:
    call = definitions.call(gate, "relax.sigmoid")
    return call is not None and bool(call.args[0].same_as(x))


_Matches = Callable[[_Definitions, Any, Any], bool]
# The constant that the product must have, what the factor beside x must be, and what that is together.
_ACTIVATIONS: tuple[tuple[float, _Matches, Callable[[Any], Any]], ...] = (
    (0.5, _is_erf_gate, relax.op.nn.gelu),
    (0.5, _is_tanh_gate, relax.op.nn.gelu_tanh),
    (1.0, _is_sigmoid, relax.op.nn.silu),
)
