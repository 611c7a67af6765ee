"""Losses with their gradient: each emits the mean loss and d loss / d output, for a Relax builder.

Those with a closed form that is two kernels are here; `derived_losses.py` holds those that autodiff differentiates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edgetrain._tvm import constant_like, relax, shape_of, te, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.ctc import ctc
from edgetrain.graph.derived_losses import DERIVED_LOSSES
from edgetrain.graph.gradients.rule import emit_kernel
from edgetrain.graph.loss import Emit, Loss, MakeLoss, Shape, class_label_shape
from edgetrain.graph.onnx_loss import onnx_loss
from edgetrain.graph.options import LossOptions, TrainOptions

ONNX = "onnx"


def loss_of(options: TrainOptions, output_shape: Shape) -> Loss:
    """The loss the options name, for a model whose first output has this shape.

    Raises `UsageError` for an unknown name, and for an output that the loss cannot work on.
    """
    if options.loss not in LOSSES:
        raise UsageError(f"unknown train.loss `{options.loss}`", fix=f"use one of: {', '.join(LOSSES)}")
    return LOSSES[options.loss](options.loss_options, output_shape)


def _total(element: Callable[..., Any], shape: Shape, scale: float, name: str) -> Any:
    axes = [te.reduce_axis((0, extent), f"a{i}") for i, extent in enumerate(shape)]
    total = te.compute((), lambda: te.sum(element(*axes), axis=axes), name=f"{name}_sum")
    return te.compute((), lambda: total[()] * constant_like(scale, total), name=name)


def _cross_entropy(options: LossOptions, output_shape: Shape) -> Loss:
    smoothing = options.label_smoothing
    if not 0.0 <= smoothing < 1.0:
        raise UsageError(f"train.label_smoothing = {smoothing} is not in [0, 1)", fix="0.1 is the usual value")
    label_shape = class_label_shape("cross-entropy", output_shape)
    return Loss(
        emit=_cross_entropy_emitter(smoothing),
        label_shape=label_shape,
        label_dtype="int64",
        absorbs="relax.nn.softmax",
    )


def _cross_entropy_emitter(smoothing: float) -> Emit:
    """The target is 1 − ε for the label's class, plus ε / classes for every class, as in PyTorch."""

    def emit(builder: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
        shape, label_shape = shape_of(logits), shape_of(labels)
        rows, everywhere = math.prod(label_shape), smoothing / shape[1]

        def target(label: Any, dtype: str, n: Any, c: Any, *i: Any) -> Any:
            is_class = label[(n, *i)] == tirx.Cast(label.dtype, c)
            return tirx.Select(is_class, tirx.const(1.0 - smoothing + everywhere, dtype), tirx.const(everywhere, dtype))

        def cross_entropy(log_p: Any, label: Any) -> Any:
            if smoothing == 0.0:
                return _total(lambda n, *i: log_p[(n, label[(n, *i)], *i)], label_shape, -1.0 / rows, "cross_entropy")
            return _total(lambda *i: target(label, log_p.dtype, *i) * log_p[i], shape, -1.0 / rows, "cross_entropy")

        def cross_entropy_gradient(log_p: Any, label: Any) -> Any:
            share = tirx.const(1.0 / rows, log_p.dtype)

            def element(*i: Any) -> Any:
                return (tirx.exp(log_p[i]) - target(label, log_p.dtype, *i)) * share

            return te.compute(shape, element, name="cross_entropy_gradient")

        log_probabilities = builder.emit(relax.op.nn.log_softmax(logits, axis=1))
        loss = emit_kernel(builder, cross_entropy, log_probabilities, labels)
        return loss, emit_kernel(builder, cross_entropy_gradient, log_probabilities, labels)

    return emit


def _elementwise(
    name: str, value: Callable[[Any, Any], Any], slope: Callable[[Any, Any], Any], *, absorbs: str = ""
) -> MakeLoss:
    """A loss that is the mean of `value(output, label)` with derivative `slope(output, label)`."""

    def emit(builder: Any, output: Any, labels: Any) -> tuple[Any, Any]:
        shape = shape_of(output)
        count = math.prod(shape)

        def loss(x: Any, y: Any) -> Any:
            return _total(lambda *i: value(x[i], y[i]), shape, 1.0 / count, name)

        def gradient(x: Any, y: Any) -> Any:
            share = tirx.const(1.0 / count, x.dtype)
            return te.compute(shape, lambda *i: slope(x[i], y[i]) * share, name=f"{name}_gradient")

        return (
            builder.emit_te(loss, output, labels, primfunc_name_hint=name),
            builder.emit_te(gradient, output, labels, primfunc_name_hint=f"{name}_gradient"),
        )

    def make(_options: LossOptions, output_shape: Shape) -> Loss:
        return Loss(emit=emit, label_shape=output_shape, label_dtype="float32", absorbs=absorbs)

    return make


def _one(like: Any) -> Any:
    return constant_like(1.0, like)


def _zero(like: Any) -> Any:
    return constant_like(0.0, like)


def _bce(x: Any, y: Any) -> Any:
    """max(x, 0) − x·y + log(1 + e^−|x|): stable for logits of any size."""
    return tirx.max(x, _zero(x)) - x * y + tirx.log(_one(x) + tirx.exp(_zero(x) - tirx.abs(x)))


def _sign(x: Any) -> Any:
    return tirx.Select(x > _zero(x), _one(x), tirx.Select(x < _zero(x), _zero(x) - _one(x), _zero(x)))


LOSSES: Mapping[str, MakeLoss] = {
    "cross-entropy": _cross_entropy,
    "bce": _elementwise("bce", _bce, lambda x, y: tirx.sigmoid(x) - y, absorbs="relax.sigmoid"),
    "mse": _elementwise("mse", lambda x, y: (x - y) * (x - y), lambda x, y: (x - y) * constant_like(2.0, x)),
    "l1": _elementwise("l1", lambda x, y: tirx.abs(x - y), lambda x, y: _sign(x - y)),
    **DERIVED_LOSSES,
    "ctc": ctc,
    ONNX: onnx_loss,
}
