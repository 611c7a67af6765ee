"""Matrix products. Every einsum of two operands is one batched matmul between views."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext, binary


def _gemm(context: NodeContext) -> Any:
    a, b, c = context.input(0), context.input(1), context.input(2)
    if context.attribute("transA", 0):
        a = context.emit(relax.op.permute_dims(a, [1, 0]))
    if context.attribute("transB", 0):
        b = context.emit(relax.op.permute_dims(b, [1, 0]))
    result = context.emit(relax.op.matmul(a, b))
    alpha, beta = float(context.attribute("alpha", 1.0)), float(context.attribute("beta", 1.0))
    if alpha != 1.0:
        result = context.emit(relax.op.multiply(result, relax.const(alpha, dtype_of(result))))
    if c is None:
        return result
    if beta != 1.0:
        c = context.emit(relax.op.multiply(c, relax.const(beta, dtype_of(result))))
    return context.emit(relax.op.add(result, c))


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A tensor with one letter for each axis."""

    tensor: Any
    labels: str

    def size(self, label: str) -> int:
        return shape_of(self.tensor)[self.labels.index(label)]


def _einsum(context: NodeContext) -> Any:
    terms, output = _parse(context)
    result = terms[0]
    for i, term in enumerate(terms[1:], start=1):
        later = output + "".join(t.labels for t in terms[i + 1 :])
        result = _contract(context, result, term, later)
    result = _sum_out(context, result, output)
    order = [result.labels.index(label) for label in output]
    if order == list(range(len(order))):
        return result.tensor
    return context.emit(relax.op.permute_dims(result.tensor, order))


def _parse(context: NodeContext) -> tuple[list[_Labelled], str]:
    equation = context.attribute("equation", "").replace(" ", "")
    left, arrow, output = equation.partition("->")
    parts = left.split(",")
    spare = [chr(c) for c in range(ord("A"), ord("Z") + 1) if chr(c) not in equation]
    terms = []
    dots = ""
    for part, tensor in zip(parts, context.inputs, strict=True):
        rank = len(shape_of(tensor)) - len(part.replace("...", ""))
        hidden = "".join(spare[len(spare) - rank :]) if "..." in part else ""
        dots = hidden if len(hidden) > len(dots) else dots
        labels = part.replace("...", hidden)
        if len(set(labels)) != len(labels):
            raise CannotConvert(f"`{equation}` takes a diagonal, which is not supported")
        terms.append(_Labelled(tensor, labels))
    if not arrow:
        counted = "".join(t.labels for t in terms)
        output = "..." + "".join(sorted(x for x in set(counted) if counted.count(x) == 1 and x not in dots))
    return terms, output.replace("...", dots)


def _sum_out(context: NodeContext, term: _Labelled, kept: str) -> _Labelled:
    axes = [i for i, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    labels = "".join(label for label in term.labels if label in kept)
    return _Labelled(context.emit(relax.op.sum(term.tensor, axes)), labels)


def _contract(context: NodeContext, left: _Labelled, right: _Labelled, later: str) -> _Labelled:
    """One batched matmul: shared labels still needed are its batch, shared ones that are not are summed."""
    left = _sum_out(context, left, right.labels + later)
    right = _sum_out(context, right, left.labels + later)
    batch = [x for x in left.labels if x in right.labels and x in later]
    summed = [x for x in left.labels if x in right.labels and x not in later]
    rows = [x for x in left.labels if x not in right.labels]
    columns = [x for x in right.labels if x not in left.labels]
    for label in (*batch, *summed):
        if left.size(label) != right.size(label):
            raise CannotConvert(f"axes of {left.size(label)} and {right.size(label)} elements share a letter")
    product = context.emit(
        relax.op.matmul(
            _as_matrices(context, left, batch, rows, summed), _as_matrices(context, right, batch, summed, columns)
        )
    )
    sizes = {x: t.size(x) for t in (left, right) for x in t.labels}
    labels = [*batch, *rows, *columns]
    return _Labelled(context.emit(relax.op.reshape(product, [sizes[x] for x in labels])), "".join(labels))


def _as_matrices(context: NodeContext, term: _Labelled, *parts: Sequence[str]) -> Any:
    """The tensor as (batch, rows, columns), each part's axes merged into one."""
    order = [term.labels.index(label) for part in parts for label in part]
    tensor = term.tensor
    if order != list(range(len(order))):
        tensor = context.emit(relax.op.permute_dims(tensor, order))
    shape = tuple(math.prod(term.size(label) for label in part) for part in parts)
    return tensor if shape_of(tensor) == shape else context.emit(relax.op.reshape(tensor, shape))


PRODUCT_CONVERTERS: Mapping[str, Converter] = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": binary(relax.op.matmul),
}
