"""Losses with their gradient: each emits the mean loss and d loss / d output, for a Relax builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import constant_like, relax, shape_of, te, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.gradients.rule import emit_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """`emit(builder, output, labels) -> (loss, gradient of the output)`; labels have `label_dtype`."""

    emit: Callable[[Any, Any, Any], tuple[Any, Any]]
    label_dtype: str
    absorbs: str  # the final op this loss contains already: it works on that op's input


def label_shape(loss: str, output_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Class indices have no class axis (axis 1); every other loss compares element by element."""
    if loss != "cross-entropy":
        return output_shape
    if len(output_shape) < 2:
        raise UsageError(
            f"cross-entropy needs an output of shape (batch, classes, …), this model's is {list(output_shape)}",
            fix="set train.loss = 'bce' or 'mse'",
        )
    return (output_shape[0], *output_shape[2:])


def _total(element: Callable[..., Any], shape: tuple[int, ...], scale: float, name: str) -> Any:
    axes = [te.reduce_axis((0, extent), f"a{i}") for i, extent in enumerate(shape)]
    total = te.compute((), lambda: te.sum(element(*axes), axis=axes), name=f"{name}_sum")
    return te.compute((), lambda: total[()] * constant_like(scale, total), name=name)


def _cross_entropy(builder: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
    shape = shape_of(logits)
    rows = 1
    for extent in shape_of(labels):
        rows *= extent
    log_probabilities = builder.emit(relax.op.nn.log_softmax(logits, axis=1))

    def cross_entropy(log_p: Any, label: Any) -> Any:
        return _total(lambda n, *i: log_p[(n, label[(n, *i)], *i)], shape_of(label), -1.0 / rows, "cross_entropy")

    def cross_entropy_gradient(log_p: Any, label: Any) -> Any:
        one, zero = tirx.const(1.0, log_p.dtype), tirx.const(0.0, log_p.dtype)

        def element(n: Any, c: Any, *i: Any) -> Any:
            hit = tirx.Select(label[(n, *i)] == tirx.Cast(label.dtype, c), one, zero)
            return (tirx.exp(log_p[(n, c, *i)]) - hit) * tirx.const(1.0 / rows, log_p.dtype)

        return te.compute(shape, element, name="cross_entropy_gradient")

    loss = emit_kernel(builder, cross_entropy, log_probabilities, labels)
    return loss, emit_kernel(builder, cross_entropy_gradient, log_probabilities, labels)


def _elementwise(value: Callable[[Any, Any], Any], slope: Callable[[Any, Any], Any], name: str) -> Callable[..., Any]:
    """A loss that is the mean of `value(output, label)` with derivative `slope(output, label)`."""

    def emit(builder: Any, output: Any, labels: Any) -> tuple[Any, Any]:
        shape = shape_of(output)
        count = 1
        for extent in shape:
            count *= extent

        def loss(x: Any, y: Any) -> Any:
            return _total(lambda *i: value(x[i], y[i]), shape, 1.0 / count, name)

        def gradient(x: Any, y: Any) -> Any:
            share = tirx.const(1.0 / count, x.dtype)
            return te.compute(shape, lambda *i: slope(x[i], y[i]) * share, name=f"{name}_gradient")

        return (
            builder.emit_te(loss, output, labels, primfunc_name_hint=name),
            builder.emit_te(gradient, output, labels, primfunc_name_hint=f"{name}_gradient"),
        )

    return emit


def _one(like: Any) -> Any:
    return constant_like(1.0, like)


def _zero(like: Any) -> Any:
    return constant_like(0.0, like)


def _bce(x: Any, y: Any) -> Any:
    """max(x, 0) − x·y + log(1 + e^−|x|): stable for logits of any size."""
    return tirx.max(x, _zero(x)) - x * y + tirx.log(_one(x) + tirx.exp(_zero(x) - tirx.abs(x)))


def _sign(x: Any) -> Any:
    return tirx.Select(x > _zero(x), _one(x), tirx.Select(x < _zero(x), _zero(x) - _one(x), _zero(x)))


LOSSES: Mapping[str, Loss] = {
    "cross-entropy": Loss(emit=_cross_entropy, label_dtype="int64", absorbs="relax.nn.softmax"),
    "bce": Loss(
        emit=_elementwise(_bce, lambda x, y: tirx.sigmoid(x) - y, "bce"),
        label_dtype="float32",
        absorbs="relax.sigmoid",
    ),
    "mse": Loss(
        emit=_elementwise(lambda x, y: (x - y) * (x - y), lambda x, y: (x - y) * constant_like(2.0, x), "mse"),
        label_dtype="float32",
        absorbs="",
    ),
    "l1": Loss(
        emit=_elementwise(lambda x, y: tirx.abs(x - y), lambda x, y: _sign(x - y), "l1"),
        label_dtype="float32",
        absorbs="",
    ),
}
