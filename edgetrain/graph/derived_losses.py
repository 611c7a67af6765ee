"""Losses written as Relax expressions; autodiff differentiates them like the model. Formulas as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of, te, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.gradients.rule import Expr
from edgetrain.graph.loss import Loss, MakeLoss, Recorder, Shape, class_label_shape, derived
from edgetrain.graph.options import LossOptions

_SMALLEST = 1e-12  # as in torch's cosine_embedding_loss; keeps logarithms and quotients finite
_NEVER = 1e9  # subtracted from a logit that must get no share: e^−10⁹ is 0 in every float


def _number(value: float, like: Expr) -> Any:
    return relax.const(value, dtype_of(like))


def _times(at: Recorder, value: Expr, factor: float) -> Expr:
    return value if factor == 1.0 else at.emit(relax.op.multiply(value, _number(factor, value)))


def _sum(at: Recorder, value: Expr, scale: float, axes: list[int] | None = None) -> Expr:
    return _times(at, at.emit(relax.op.sum(value, axes)), scale)


def _product(at: Recorder, left: Expr, right: Expr) -> Expr:
    return at.emit(relax.op.multiply(left, right))


def _log_softmax(at: Recorder, value: Expr) -> Expr:
    return at.emit(relax.op.nn.log_softmax(value, axis=1))


def _focal(options: LossOptions) -> Callable[[Recorder, Expr, Expr], Expr]:
    """The mean of −(1 − p)^γ · log p, p the share of the label's class (Lin et al., 2017, arXiv:1708.02002)."""

    def express(at: Recorder, output: Expr, labels: Expr) -> Expr:
        def one_hot(label: Any) -> Any:
            one, zero = tirx.const(1.0, dtype_of(output)), tirx.const(0.0, dtype_of(output))

            def element(n: Any, c: Any, *i: Any) -> Any:
                return tirx.Select(label[(n, *i)] == tirx.Cast(label.dtype, c), one, zero)

            return te.compute(shape_of(output), element, name="one_hot")

        hit = at.emit_te(one_hot, labels)
        log_share = at.emit(relax.op.sum(_product(at, hit, _log_softmax(at, output)), [1]))
        share = at.emit(relax.op.exp(log_share))
        missing = at.emit(relax.op.subtract(_number(1.0, share), share))
        missing = at.emit(relax.op.maximum(missing, _number(_SMALLEST, share)))
        # e^(γ·log x), not a power: expf and logf are all that a program needs from a C library.
        weight = at.emit(relax.op.exp(_times(at, at.emit(relax.op.log(missing)), options.focal_gamma)))
        return _sum(at, _product(at, weight, log_share), -1.0 / math.prod(shape_of(labels)))

    return express


def _kl(options: LossOptions) -> Callable[[Recorder, Expr, Expr], Expr]:
    """T² · mean over rows of Σ q·(log q − log p), p = softmax(output / T), q the labels: shares of each class."""

    def express(at: Recorder, output: Expr, labels: Expr) -> Expr:
        log_labels = at.emit(relax.op.log(at.emit(relax.op.maximum(labels, _number(_SMALLEST, labels)))))
        return _divergence(at, output, labels, log_labels, options.temperature)

    return express


def _distillation(options: LossOptions) -> Callable[[Recorder, Expr, Expr], Expr]:
    """As `kl`; the labels are the teacher's logits, q = softmax(labels / T) (Hinton et al., arXiv:1503.02531)."""

    def express(at: Recorder, output: Expr, labels: Expr) -> Expr:
        log_labels = _log_softmax(at, _times(at, labels, 1.0 / options.temperature))
        return _divergence(at, output, at.emit(relax.op.exp(log_labels)), log_labels, options.temperature)

    return express


def _divergence(at: Recorder, output: Expr, shares: Expr, log_shares: Expr, temperature: float) -> Expr:
    shape = shape_of(output)
    log_p = _log_softmax(at, _times(at, output, 1.0 / temperature))
    apart = at.emit(relax.op.subtract(log_shares, log_p))
    # T² keeps the gradient's size when T changes: softmax(z / T) has slope 1 / T, twice.
    return _sum(at, _product(at, shares, apart), temperature**2 * shape[1] / math.prod(shape))


def _cosine(_options: LossOptions) -> Callable[[Recorder, Expr, Expr], Expr]:
    """The mean of 1 − cos(output, labels) along axis 1: `torch.nn.CosineEmbeddingLoss` with target 1."""

    def express(at: Recorder, output: Expr, labels: Expr) -> Expr:
        rows = math.prod(shape_of(output)) // shape_of(output)[1]
        along = at.emit(relax.op.sum(_product(at, output, labels), [1]))
        lengths = _product(at, _squared_length(at, output), _squared_length(at, labels))
        cosine = at.emit(relax.op.divide(along, at.emit(relax.op.sqrt(lengths))))
        mean = _sum(at, cosine, 1.0 / rows)
        return at.emit(relax.op.subtract(_number(1.0, mean), mean))

    return express


def _squared_length(at: Recorder, value: Expr, *, keepdims: bool = False) -> Expr:
    squares = at.emit(relax.op.sum(_product(at, value, value), [1], keepdims=keepdims))
    return at.emit(relax.op.add(squares, _number(_SMALLEST, value)))


def _nt_xent(options: LossOptions) -> Callable[[Recorder, Expr, Expr], Expr]:
    """Each row must find the rows with its label among all other rows of the batch, by cosine similarity / T.

    With two rows for each label this is SimCLR's NT-Xent (arXiv:2002.05709), with more the supervised contrastive loss
    (arXiv:2004.11362). A row whose label no other row has adds 0.
    """

    def express(at: Recorder, output: Expr, labels: Expr) -> Expr:
        rows, dtype = shape_of(output)[0], dtype_of(output)

        def partners(label: Any) -> Any:
            """1 / (number of partners) where row and column are partners, else 0."""
            other = te.reduce_axis((0, rows), "other")

            def is_partner(i: Any, j: Any) -> Any:
                return tirx.all(label[i] == label[j], i != j)

            one, zero = tirx.const(1.0, dtype), tirx.const(0.0, dtype)
            count = te.compute((rows,), lambda i: te.sum(tirx.Select(is_partner(i, other), one, zero), axis=other))
            return te.compute(
                (rows, rows), lambda i, j: tirx.Select(is_partner(i, j), one / tirx.max(count[i], one), zero)
            )

        length = at.emit(relax.op.sqrt(_squared_length(at, output, keepdims=True)))
        unit = at.emit(relax.op.divide(output, length))
        similar = at.emit(relax.op.matmul(unit, at.emit(relax.op.permute_dims(unit, [1, 0]))))
        itself = at.emit_te(_excluded_diagonal(rows, dtype))
        others = at.emit(relax.op.subtract(_times(at, similar, 1.0 / options.temperature), itself))
        return _sum(at, _product(at, at.emit_te(partners, labels), _log_softmax(at, others)), -1.0 / rows)

    return express


def _excluded_diagonal(rows: int, dtype: str) -> Callable[[], Any]:
    def excluded_diagonal() -> Any:
        much, nothing = tirx.const(_NEVER, dtype), tirx.const(0.0, dtype)
        return te.compute((rows, rows), lambda i, j: tirx.Select(i == j, much, nothing), name="excluded_diagonal")

    return excluded_diagonal


def _on_classes(
    name: str, express: Callable[[LossOptions], Any], *, label_dtype: str, softmax: bool, is_any_label: bool = False
) -> MakeLoss:
    """Integer labels number the classes, or with `is_any_label` anything; others have the output's shape."""

    def make(options: LossOptions, output_shape: Shape) -> Loss:
        if options.temperature <= 0 or options.focal_gamma < 0:
            raise UsageError(
                f"train.temperature = {options.temperature:g} and train.focal_gamma = {options.focal_gamma:g}",
                why="the temperature is a divisor; a focal_gamma below 0 would give easy examples more weight",
                fix="set train.temperature above 0 and train.focal_gamma to 0 or more",
            )
        class_labels = class_label_shape(name, output_shape)
        return Loss(
            emit=derived(express(options)),
            label_shape=class_labels if label_dtype == "int64" else output_shape,
            label_dtype=label_dtype,
            absorbs="relax.nn.softmax" if softmax else "",
            label_bounds=(0, output_shape[1] - 1) if label_dtype == "int64" and not is_any_label else None,
        )

    return make


def _contrastive(options: LossOptions, output_shape: Shape) -> Loss:
    if len(output_shape) != 2:
        raise UsageError(
            f"nt-xent needs an output of shape (batch, features), this model's is {list(output_shape)}",
            fix="flatten the output, or use another loss",
        )
    make = _on_classes("nt-xent", _nt_xent, label_dtype="int64", softmax=False, is_any_label=True)
    return make(options, output_shape)


DERIVED_LOSSES: Mapping[str, MakeLoss] = {
    "focal": _on_classes("focal", _focal, label_dtype="int64", softmax=True),
    "kl": _on_classes("kl", _kl, label_dtype="float32", softmax=True),
    "distillation": _on_classes("distillation", _distillation, label_dtype="float32", softmax=True),
    "cosine": _on_classes("cosine", _cosine, label_dtype="float32", softmax=False),
    "nt-xent": _contrastive,
}
