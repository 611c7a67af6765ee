"""Losses with their gradient: each emits the mean loss and d loss / d output, for a Relax builder.

Those with a closed form that is two kernels are here and in `cross_entropy.py`; `derived_losses.py` holds those that
autodiff differentiates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edgetrain._tvm import constant_like, shape_of, te, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.cross_entropy import cross_entropy
from edgetrain.graph.ctc import ctc
from edgetrain.graph.derived_losses import DERIVED_LOSSES
from edgetrain.graph.loss import Loss, MakeLoss, Shape, scaled_sum
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


def _elementwise(
    name: str, value: Callable[[Any, Any], Any], slope: Callable[[Any, Any], Any], *, absorbs: str = ""
) -> MakeLoss:
    """A loss that is the mean of `value(output, label)` with derivative `slope(output, label)`."""

    def emit(builder: Any, output: Any, labels: Any) -> tuple[Any, Any]:
        shape = shape_of(output)
        count = math.prod(shape)

        def loss(x: Any, y: Any) -> Any:
            return scaled_sum(lambda *i: value(x[i], y[i]), shape, 1.0 / count, name)

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
    "cross-entropy": cross_entropy,
    "bce": _elementwise("bce", _bce, lambda x, y: tirx.sigmoid(x) - y, absorbs="relax.sigmoid"),
    "mse": _elementwise("mse", lambda x, y: (x - y) * (x - y), lambda x, y: (x - y) * constant_like(2.0, x)),
    "l1": _elementwise("l1", lambda x, y: tirx.abs(x - y), lambda x, y: _sign(x - y)),
    **DERIVED_LOSSES,
    "ctc": ctc,
    ONNX: onnx_loss,
}
