"""ONNX's own losses, as loss graphs and training exports spell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext


def _softmax_cross_entropy(context: NodeContext) -> list[Any]:
    log_shares = context.emit(relax.op.nn.log_softmax(context.required(0), axis=1))
    loss = _negative_log_likelihood(context, log_shares)
    return [loss, log_shares][: len(context.node.output)]


def _negative_log_likelihood_loss(context: NodeContext) -> Any:
    return _negative_log_likelihood(context, context.required(0))


def _negative_log_likelihood(context: NodeContext, log_shares: Any) -> Any:
    """−log of each label's share, weighted by its class; labels of `ignore_index` weigh nothing."""
    labels = context.emit(relax.op.astype(context.required(1), "int64"))
    classes = shape_of(log_shares)[1]
    weight = None
    ignored = context.attribute("ignore_index", None)
    allowed = (0, classes - 1) if ignored is None else (min(0, int(ignored)), max(classes - 1, int(ignored)))
    context.resolver.require(context.required(1), *allowed)
    if ignored is not None:
        counts = context.emit(relax.op.not_equal(labels, relax.const(int(ignored), "int64")))
        weight = context.emit(relax.op.astype(counts, dtype_of(log_shares)))
    places = context.emit(
        relax.op.minimum(
            context.emit(relax.op.maximum(labels, relax.const(0, "int64"))), relax.const(classes - 1, "int64")
        )
    )
    if context.has(2):
        flat = context.emit(relax.op.reshape(places, (-1,)))
        by_class = context.emit(relax.op.take(context.required(2), flat, axis=0))
        by_label = context.emit(relax.op.reshape(by_class, shape_of(labels)))
        weight = by_label if weight is None else context.emit(relax.op.multiply(weight, by_label))
    columns = context.emit(relax.op.expand_dims(places, 1))
    chosen = context.emit(relax.op.squeeze(context.emit(relax.op.gather_elements(log_shares, columns, 1)), [1]))
    losses = context.emit(relax.op.negative(chosen))
    losses = losses if weight is None else context.emit(relax.op.multiply(losses, weight))
    return _reduced(context, losses, weight)


def _reduced(context: NodeContext, losses: Any, weight: Any | None) -> Any:
    reduction = context.attribute("reduction", "mean")
    if reduction not in ("mean", "sum", "none"):
        raise CannotConvert(f"reduction `{reduction}` is unknown")
    if reduction == "none":
        return losses
    if reduction == "mean" and weight is None:
        return context.emit(relax.op.mean(losses))
    total = context.emit(relax.op.sum(losses))
    return total if reduction == "sum" else context.emit(relax.op.divide(total, context.emit(relax.op.sum(weight))))


LOSS_CONVERTERS: Mapping[str, Converter] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood_loss,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
