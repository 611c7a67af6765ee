"""exp, erf, tanh and sigmoid as arithmetic, which LLVM turns into vectors; libm takes one number at a time.

Within 2 units in the last place of the exact value, 3 for sigmoid, with these limits: NaN stays NaN, exp is
infinite above the largest float's logarithm and 0 where it would be subnormal, erf and tanh end at exactly 1 and -1.
1 + erf(x), the gate of a GELU, is one function: within 2 units of ½, and nearer than the sum where it is small.

LLVM may reassociate sums here. Where an order matters, a minimum or maximum that never bites stands between the terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from edgetrain_tuner.machine import Machine

_FLOAT, _INTEGER = "float32", "int32"
_ATTRIBUTE = "edgetrain.elementary"

_LARGEST_EXPONENT = 88.72283935546875  # above, exp is larger than any float
_LEAST_EXPONENT = -87.33654022216797  # below, exp is subnormal
_LOG2_E = math.log2(math.e)
# ln 2 in two parts, of which the first times any exponent is exact; then the polynomial. From Cephes, expf.c.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_MANTISSA_BITS = 23

# Up to the middle x + x · P(x²), beyond it 1 - exp(-t - t · P(t)) of the magnitude t: N. Juffa's erff.
_ERF_MIDDLE, _ERF_END = 0.927734375, 4.0  # from the end on the nearest float is 1
_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)
# 1 + erf(x) is 2 - 2^(t · P(t)) of the magnitude t, mirrored. Chosen for the least error of the power on [0, 4.5] by
# reweighted least squares; at the end it is 2e-10, and beyond it counts as 0.
_GATE = (
    8.6272876e-6,
    -1.2183697e-4,
    7.1525545e-4,
    -1.9745664e-3,
    -3.0175046e-4,
    2.8009739e-2,
    -1.4842251e-1,
    -9.1842097e-1,
    -1.6279087,
)
_GATE_END = 4.5
# 2^f for |f| ≤ ½ is 1 + f · P(f), by the same means.
_POWER = (1.5322548e-4, 1.3397282e-3, 9.6185599e-3, 5.5503383e-2, 2.4022646e-1, 6.9314718e-1)
_ROUNDING = 12582912.0  # 1½ · 2²³: with a small whole number added, that number stands in the last bits
# Up to the middle x + x³ · P(x²), beyond it 1 - 2 / (exp(2t) + 1): Cephes, tanhf.c.
_TANH_MIDDLE, _TANH_END = 0.625, 10.0  # before the end the nearest float is 1
_TANH_NEAR = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def as_arithmetic(function: Any, machine: Machine) -> Any:
    """The kernel with elementary functions of single floats written out, on targets with vectors."""
    if not machine.has_vectors:  # calls to libm are smaller there, and as fast
        return function

    def on_call(call: Any) -> Any:
        written = _FUNCTIONS.get(_called(call))
        return written(call.args[0]) if written is not None and str(call.ty.dtype) == _FLOAT else call

    def on_sum(total: Any) -> Any:
        gate = _gate_in(total)
        return total if gate is None else gate

    body = tvm_ffi.structural_map(function.body, (tirx.Add, on_sum))
    body = tvm_ffi.structural_map(body, (Call, on_call))
    if body.same_as(function.body):
        return function
    written = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    return written.with_attr(_ATTRIBUTE, True)


def is_elementary(function: Any) -> bool:
    """Whether `as_arithmetic` wrote something out in it."""
    return function.attrs is not None and _ATTRIBUTE in function.attrs


def _called(expression: Any) -> str:
    """The name of the operator that the expression calls; empty where it is no call."""
    return str(getattr(expression.op, "name", "")) if isinstance(expression, Call) else ""


def _gate_in(total: Any) -> Any:
    """c + c · erf(x), in any order, written as c times one function; None for any other sum."""
    for constant, term in ((total.a, total.b), (total.b, total.a)):
        if not isinstance(constant, tirx.FloatImm) or str(constant.ty.dtype) != _FLOAT:
            continue
        factors = (term.a, term.b) if isinstance(term, tirx.Mul) else (_number(1.0), term)
        for factor, call in (factors, factors[::-1]):
            is_same = isinstance(factor, tirx.FloatImm) and float(factor.value) == float(constant.value)
            if is_same and _called(call) == "tirx.erf":
                return constant * _gate(call.args[0])
    return None


def _number(value: float) -> Any:
    return tirx.FloatImm(_FLOAT, value)


def _named(value: Any, use: Callable[[Any], Any]) -> Any:
    """`use` of the value, which is computed once."""
    variable = tirx.Var("v", value.ty)
    return tirx.Let(variable, value, use(variable))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    total = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + _number(coefficient)
    return total


def _polynomial_in_halves(x: Any, coefficients: Sequence[float]) -> Any:
    """Even and odd powers at the same time: half as many steps wait for each other, for one more product."""
    last_is_even = len(coefficients) % 2 == 1
    first, second = coefficients[0::2], coefficients[1::2]
    even, odd = (first, second) if last_is_even else (second, first)
    return _named(x * x, lambda square: _polynomial(square, odd) * x + _polynomial(square, even))


def _between(x: Any, low: float, high: float) -> Any:
    return tirx.min(tirx.max(x, _number(low)), _number(high))


def _exp_inside(argument: Any) -> Any:
    """exp of what is between the least and the largest exponent; anything for NaN.

    2ⁿ · exp(r) with |r| ≤ ln 2 / 2: n goes straight into the exponent's bits.
    """

    def scaled(y: Any, n: Any) -> Any:
        # The maximum keeps both parts of ln 2 apart.
        rest = tirx.max(y - n * _number(_LN2_HIGH), _number(-1.0)) - n * _number(_LN2_LOW)
        power = _named(rest, lambda r: _polynomial(r, _EXP) * r * r + r + _number(1.0))
        bits = tirx.reinterpret(_INTEGER, power) + tirx.Cast(_INTEGER, n) * (1 << _MANTISSA_BITS)
        return tirx.reinterpret(_FLOAT, bits)

    return _named(argument, lambda y: _named(tirx.floor(y * _number(_LOG2_E) + _number(0.5)), lambda n: scaled(y, n)))


def _exp(argument: Any) -> Any:
    def of(x: Any) -> Any:
        inside = _between(x, _LEAST_EXPONENT, _LARGEST_EXPONENT)
        return _named(_exp_inside(inside), lambda result: limited(x, result))

    def limited(x: Any, result: Any) -> Any:
        above = tirx.Select(x > _number(_LARGEST_EXPONENT), _number(math.inf), result)
        below = tirx.Select(x < _number(_LEAST_EXPONENT), _number(0.0), above)
        return _unless_nan(x, below)

    return _named(argument, of)


def _unless_nan(x: Any, value: Any) -> Any:
    return tirx.Select(tirx.isnan(x), x, value)


def _odd(argument: Any, middle: float, near: Callable[[Any, Any], Any], far: Callable[[Any], Any]) -> Any:
    """`near` of the argument and its square up to the middle, beyond it `far` of the magnitude, with the sign."""

    def of(x: Any) -> Any:
        return _named(tirx.max(x, _number(0.0) - x), lambda t: _named(far(t), lambda outer: joined(x, t, outer)))

    def joined(x: Any, t: Any, outer: Any) -> Any:
        signed = tirx.Select(x < _number(0.0), _number(0.0) - outer, outer)
        inner = _named(x * x, lambda square: near(x, square))
        return _named(inner, lambda v: _unless_nan(x, tirx.Select(t > _number(middle), signed, v)))

    return _named(argument, of)


def _erf(argument: Any) -> Any:
    def far(t: Any) -> Any:
        inside = tirx.min(t, _number(_ERF_END))
        return _named(inside, lambda u: _number(1.0) - _exp_inside(_polynomial(u, _ERF_FAR) * u - u))

    return _odd(argument, _ERF_MIDDLE, lambda x, square: _polynomial(square, _ERF_NEAR) * x + x, far)


def _power_of_two(argument: Any) -> Any:
    """2 to what is between -126 and 127, or NaN.

    2ⁿ · 2ᶠ with |f| ≤ ½: n is shifted into the exponent's bits from where it stands in a float, so NaN needs no care.
    """

    def scaled(z: Any, n: Any) -> Any:
        power = _named(z - n, lambda f: _polynomial_in_halves(f, _POWER) * f + _number(1.0))
        last_bits = tirx.reinterpret(_INTEGER, n + _number(_ROUNDING))
        exponent = tirx.shift_left(last_bits, tirx.IntImm(_INTEGER, _MANTISSA_BITS))
        return tirx.reinterpret(_FLOAT, tirx.reinterpret(_INTEGER, power) + exponent)

    return _named(argument, lambda z: _named(tirx.floor(z + _number(0.5)), lambda n: scaled(z, n)))


def _gate(argument: Any) -> Any:
    """1 + erf(x)."""
    end = _number(_GATE_END)

    def of(x: Any) -> Any:
        return _named(tirx.abs(x), lambda t: _named(vanishing(t), lambda rest: mirrored(x, rest)))

    def vanishing(t: Any) -> Any:
        inside = tirx.Select(t > end, end, t)  # NaN goes on
        power = _named(inside, lambda u: _power_of_two(_polynomial_in_halves(u, _GATE) * u))
        return tirx.Select(t >= end, _number(0.0), power)

    def mirrored(x: Any, rest: Any) -> Any:
        return tirx.Select(x < _number(0.0), rest, _number(2.0) - rest)

    return _named(argument, of)


def _tanh(argument: Any) -> Any:
    def far(t: Any) -> Any:
        inside = tirx.min(t, _number(_TANH_END))
        return _named(inside, lambda u: _number(1.0) - _number(2.0) / (_exp_inside(u + u) + _number(1.0)))

    return _odd(argument, _TANH_MIDDLE, lambda x, square: _polynomial(square, _TANH_NEAR) * square * x + x, far)


def _sigmoid(argument: Any) -> Any:
    return _number(1.0) / (_number(1.0) + _exp(_number(0.0) - argument))


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "tirx.exp": _exp,
    "tirx.erf": _erf,
    "tirx.tanh": _tanh,
    "tirx.sigmoid": _sigmoid,
}
