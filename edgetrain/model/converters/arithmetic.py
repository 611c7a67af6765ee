"""Elementwise arithmetic and mathematical functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnx import helper

from edgetrain._tvm import dtype_of, relax
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext, binary, unary
from edgetrain.model.converters.spelled_out import multiply


def _many(emit_pair: Callable[[Any, Any], Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        result = context.input(0)
        for other in context.inputs[1:]:
            result = context.emit(emit_pair(result, other))
        return result

    return convert


def _mean(context: NodeContext) -> Any:
    total = _many(relax.op.add)(context)
    return context.emit(relax.op.multiply(total, context.number(1.0 / len(context.inputs), total)))


def _pow(context: NodeContext) -> Any:
    """Small constant powers become multiplications: `pow` costs a hundred of them, and its gradient a logarithm."""
    base, exponent = context.input(0), context.known_input(1)
    if exponent is not None and exponent.size == 1:
        cheap = _CHEAP_POWERS.get(float(exponent.item()))
        if cheap is not None:
            return cheap(context, base)
        return context.emit(relax.op.power(base, context.number(float(exponent.item()), base)))
    dynamic = context.input(1)
    if dtype_of(dynamic) != dtype_of(base):
        dynamic = context.emit(relax.op.astype(dynamic, dtype_of(base)))
    return context.emit(relax.op.power(base, dynamic))


def _cube(context: NodeContext, base: Any) -> Any:
    return context.emit(relax.op.multiply(context.emit(relax.op.square(base)), base))


def _inverse(context: NodeContext, base: Any) -> Any:
    return context.emit(relax.op.divide(context.number(1.0, base), base))


_CHEAP_POWERS: Mapping[float, Callable[[NodeContext, Any], Any]] = {
    -1.0: _inverse,
    -0.5: lambda context, base: context.emit(relax.op.rsqrt(base)),
    0.5: lambda context, base: context.emit(relax.op.sqrt(base)),
    1.0: lambda _context, base: base,
    2.0: lambda context, base: context.emit(relax.op.square(base)),
    3.0: _cube,
}


def _cast(context: NodeContext) -> Any:
    try:
        dtype = str(helper.tensor_dtype_to_np_dtype(context.attribute("to", 0)))
    except KeyError as error:
        raise CannotConvert(f"it casts to the unknown type {context.attribute('to', 0)}") from error
    dtype = "float32" if dtype in ("float16", "bfloat16") else dtype  # the import trains in full precision
    data = context.required(0)
    return data if dtype_of(data) == dtype else context.emit(relax.op.astype(data, dtype))


def _cast_like(context: NodeContext) -> Any:
    data, dtype = context.required(0), dtype_of(context.required(1))
    return data if dtype_of(data) == dtype else context.emit(relax.op.astype(data, dtype))


ARITHMETIC_CONVERTERS: Mapping[str, Converter] = {
    "Abs": unary(relax.op.abs),
    "Acos": unary(relax.op.acos),
    "Acosh": unary(relax.op.acosh),
    "Add": binary(relax.op.add),
    "Asin": unary(relax.op.asin),
    "Asinh": unary(relax.op.asinh),
    "Atan": unary(relax.op.atan),
    "Atanh": unary(relax.op.atanh),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": unary(relax.op.ceil),
    "Cos": unary(relax.op.cos),
    "Cosh": unary(relax.op.cosh),
    "Div": binary(relax.op.divide),
    "Erf": unary(relax.op.erf),
    "Exp": unary(relax.op.exp),
    "Floor": unary(relax.op.floor),
    "Log": unary(relax.op.log),
    "Max": _many(relax.op.maximum),
    "Mean": _mean,
    "Min": _many(relax.op.minimum),
    "Mul": multiply,
    "Neg": unary(relax.op.negative),
    "Pow": _pow,
    "Reciprocal": lambda context: _inverse(context, context.input(0)),
    "Sign": unary(relax.op.sign),
    "Sin": unary(relax.op.sin),
    "Sinh": unary(relax.op.sinh),
    "Sqrt": unary(relax.op.sqrt),
    "Sub": binary(relax.op.subtract),
    "Sum": _many(relax.op.add),
    "Tan": unary(relax.op.tan),
}
