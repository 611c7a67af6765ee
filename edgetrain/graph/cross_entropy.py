"""Cross-entropy with its gradient: of class numbers or of shares of the classes, smoothed, weighted by class.

The target of a label is 1 − ε for its class plus ε / classes for every class; each class's share counts as much as the
class weighs, and the sum is divided by what the labels weigh together. All of that is as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, shape_of, te, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.gradients.rule import emit_kernel
from edgetrain.graph.loss import Emit, Loss, Shape, class_label_shape, scaled_sum
from edgetrain.graph.options import LossOptions


def cross_entropy(options: LossOptions, output_shape: Shape) -> Loss:
    """Raises `UsageError` for options that are out of range, or weights that are not one for each class."""
    smoothing, weights = options.label_smoothing, options.class_weights
    if not 0.0 <= smoothing < 1.0:
        raise UsageError(f"train.label_smoothing = {smoothing} is not in [0, 1)", fix="0.1 is the usual value")
    label_shape = class_label_shape("cross-entropy", output_shape)
    if weights and len(weights) != output_shape[1]:
        raise UsageError(
            f"there are {len(weights)} class weights, and the model has {output_shape[1]} classes",
            why="train.class_weights is a number for each class, in the order of the model's outputs; "
            "`balanced` makes one for each class of the data",
            fix=f"give {output_shape[1]} weights, or set model.classes={len(weights)}",
        )
    return Loss(
        emit=_of_targets(smoothing, weights) if weights or options.has_label_rows else _of_classes(smoothing),
        label_shape=output_shape if options.has_label_rows else label_shape,
        label_dtype="float32" if options.has_label_rows else "int64",
        absorbs="relax.nn.softmax",
        label_bounds=None if options.has_label_rows else (0, output_shape[1] - 1),
    )


def _of_classes(smoothing: float) -> Emit:
    """Labels are class numbers, which all weigh the same."""

    def emit(builder: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
        shape, label_shape = shape_of(logits), shape_of(labels)
        rows, everywhere = math.prod(label_shape), smoothing / shape[1]

        def target(label: Any, dtype: str, n: Any, c: Any, *i: Any) -> Any:
            is_class = label[(n, *i)] == tirx.Cast(label.dtype, c)
            return tirx.Select(is_class, tirx.const(1.0 - smoothing + everywhere, dtype), tirx.const(everywhere, dtype))

        def cross_entropy(log_p: Any, label: Any) -> Any:
            name, scale = "cross_entropy", -1.0 / rows
            if smoothing == 0.0:
                return scaled_sum(lambda n, *i: log_p[(n, label[(n, *i)], *i)], label_shape, scale, name)
            return scaled_sum(lambda *i: target(label, log_p.dtype, *i) * log_p[i], shape, scale, name)

        def cross_entropy_gradient(log_p: Any, label: Any) -> Any:
            share = tirx.const(1.0 / rows, log_p.dtype)

            def element(*i: Any) -> Any:
                return (tirx.exp(log_p[i]) - target(label, log_p.dtype, *i)) * share

            return te.compute(shape, element, name="cross_entropy_gradient")

        log_probabilities = builder.emit(relax.op.nn.log_softmax(logits, axis=1))
        loss = emit_kernel(builder, cross_entropy, log_probabilities, labels)
        return loss, emit_kernel(builder, cross_entropy_gradient, log_probabilities, labels)

    return emit


def _of_targets(smoothing: float, weights: Sequence[float]) -> Emit:
    """Labels are class numbers, or rows of shares with the output's shape; what a label weighs is computed once."""

    def emit(builder: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
        shape, dtype = shape_of(logits), dtype_of(logits)
        has_rows = len(shape_of(labels)) == len(shape)
        by_class = np.asarray(weights or [1.0] * shape[1], dtype)
        everywhere = smoothing / shape[1]
        places = (shape[0], *shape[2:])

        def number(value: float) -> Any:
            return tirx.const(value, dtype)

        def share(label: Any, n: Any, c: Any, *i: Any) -> Any:
            if has_rows:
                return tirx.Cast(dtype, label[(n, c, *i)])
            return tirx.Select(label[(n, *i)] == tirx.Cast(label.dtype, c), number(1.0), number(0.0))

        def target(label: Any, weight: Any, n: Any, c: Any, *i: Any) -> Any:
            smooth = share(label, n, c, *i) * number(1.0 - smoothing) + number(everywhere)
            return weight[c] * smooth

        def label_weight(label: Any, weight: Any) -> Any:
            if not has_rows:
                return te.compute(places, lambda n, *i: weight[label[(n, *i)]], name="label_weight")
            classes = te.reduce_axis((0, shape[1]), "c")
            return te.compute(
                places,
                lambda n, *i: te.sum(weight[classes] * share(label, n, classes, *i), axis=classes),
                name="label_weight",
            )

        def total_weight(weighs: Any) -> Any:
            return scaled_sum(lambda *i: weighs[i], places, 1.0, "total_weight")

        def cross_entropy(log_p: Any, label: Any, weight: Any, total: Any) -> Any:
            def element(*i: Any) -> Any:
                return target(label, weight, *i) * log_p[i]

            summed = scaled_sum(element, shape, -1.0, "cross_entropy_sum")
            return te.compute((), lambda: summed[()] / total[()], name="cross_entropy")

        def cross_entropy_gradient(log_p: Any, label: Any, weight: Any, weighs: Any, total: Any) -> Any:
            def element(n: Any, c: Any, *i: Any) -> Any:
                targets = weighs[(n, *i)] * number(1.0 - smoothing) + number(everywhere * float(by_class.sum()))
                return (tirx.exp(log_p[(n, c, *i)]) * targets - target(label, weight, n, c, *i)) / total[()]

            return te.compute(shape, element, name="cross_entropy_gradient")

        weight = relax.const(by_class)
        log_probabilities = builder.emit(relax.op.nn.log_softmax(logits, axis=1))
        weighs = emit_kernel(builder, label_weight, labels, weight)
        total = emit_kernel(builder, total_weight, weighs)
        loss = emit_kernel(builder, cross_entropy, log_probabilities, labels, weight, total)
        gradient = emit_kernel(builder, cross_entropy_gradient, log_probabilities, labels, weight, weighs, total)
        return loss, gradient

    return emit
