"""matmul without transposed copies: a transposed operand is read in place, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import relax, shape_of, te
from edgetrain.graph.gradients.rule import Backward, Done, Forward, Gradients, Rule, sum_to_shape


@dataclass(frozen=True, slots=True)
class _Operands:
    """A product's stored operands; `transposed_right` says that the right one is read as its transpose."""

    left: Any
    right: Any
    transposed_right: bool


def _swaps_last_two(axes: Sequence[int]) -> bool:
    """Whether a permutation swaps the last two axes and nothing else."""
    rank = len(axes)
    return rank >= 2 and list(axes) == [*range(rank - 2), rank - 1, rank - 2]


def _forward(step: Forward) -> Done:
    """Reads `matmul(a, permute_dims(b))` straight from `b`: exported linear layers store their weight so."""
    left, right = step.inputs
    definition = step.definitions.get(right)
    if definition is not None and definition.op.name == "relax.permute_dims" and len(shape_of(left)) >= 2:
        axes = definition.attrs.axes
        rank = len(shape_of(right))
        order = list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]
        if _swaps_last_two(order) and _same_batch(left, right):
            stored = definition.args[0]
            product = step.emit_te(matmul_nt, left, stored)
            return Done(outputs=(product,), inputs=(left, stored), residuals=_Operands(left, stored, True))
    return Done(outputs=(step.builder.emit(step.call),), residuals=_Operands(left, right, False))


def _same_batch(left: Any, right: Any) -> bool:
    return len(shape_of(right)) == 2 or shape_of(left)[:-2] == shape_of(right)[:-2]


def _contract(a: Any, b: Any, *, a_axis: int, b_axis: int, name: str) -> Any:
    """Contracts one of the last two axes of `a` with one of `b`'s; `b` may lack the batch axes, then it is shared."""
    a_shape, b_shape = shape_of(a), shape_of(b)
    rows = a_shape[-1 if a_axis == -2 else -2]
    columns = b_shape[-1 if b_axis == -2 else -2]
    batch = a_shape[:-2]
    k = te.reduce_axis((0, a_shape[a_axis]), "k")

    def element(*index: Any) -> Any:
        *lead, i, j = index
        left = (*lead, k, i) if a_axis == -2 else (*lead, i, k)
        right = (k, j) if b_axis == -2 else (j, k)
        return te.sum(a[left] * b[(*lead, *right) if len(b_shape) > 2 else right], axis=k)

    return te.compute((*batch, rows, columns), element, name=name)


def matmul_nt(a: Any, b: Any) -> Any:
    """a · bᵀ"""
    return _contract(a, b, a_axis=-1, b_axis=-1, name="matmul_nt")


def matmul_nn(a: Any, b: Any) -> Any:
    """a · b"""
    return _contract(a, b, a_axis=-1, b_axis=-2, name="matmul_nn")


def matmul_tn(a: Any, b: Any) -> Any:
    """aᵀ · b"""
    return _contract(a, b, a_axis=-2, b_axis=-2, name="matmul_tn")


def _as_matrix(step: Backward, expr: Any) -> Any:
    """All but the last axis flattened: a shared right operand sees one long batch of rows."""
    shape = shape_of(expr)
    if len(shape) == 2:
        return expr
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    return step.emit(relax.op.reshape(expr, (rows, shape[-1])))


def _backward(step: Backward) -> Gradients:
    operands: _Operands = step.residuals
    left, right, dy = operands.left, operands.right, step.output_gradient
    if min(len(shape_of(left)), len(shape_of(right))) < 2 or not _same_batch(left, right):
        return _broadcast_backward(step, operands)
    left_gradient = right_gradient = None
    if step.wanted[0]:
        left_gradient = step.emit_te(matmul_nn if operands.transposed_right else matmul_nt, dy, right)
    if step.wanted[1]:
        shared = len(shape_of(right)) == 2
        rows, gradient = (_as_matrix(step, left), _as_matrix(step, dy)) if shared else (left, dy)
        pair = (gradient, rows) if operands.transposed_right else (rows, gradient)
        right_gradient = step.emit_te(matmul_tn, *pair)
    return [left_gradient, right_gradient]


def _broadcast_backward(step: Backward, operands: _Operands) -> Gradients:
    """The rare shapes (vectors, broadcast batches): plain Relax ops, then the repeated axes are summed."""
    left, right, dy = operands.left, operands.right, step.output_gradient
    left_shape, right_shape = shape_of(left), shape_of(right)
    matrix_left = step.emit(relax.op.reshape(left, (1, *left_shape))) if len(left_shape) == 1 else left
    matrix_right = step.emit(relax.op.reshape(right, (*right_shape, 1))) if len(right_shape) == 1 else right
    dy_shape = list(shape_of(dy))
    if len(right_shape) == 1:
        dy_shape.append(1)
    if len(left_shape) == 1:
        dy_shape.insert(len(dy_shape) - 1, 1)
    matrix_dy = step.emit(relax.op.reshape(dy, dy_shape))
    results: list[Any] = [None, None]
    if step.wanted[0]:
        flipped = step.emit(relax.op.permute_dims(matrix_right, _flip(matrix_right)))
        gradient = sum_to_shape(step, step.emit(relax.op.matmul(matrix_dy, flipped)), matrix_left)
        results[0] = step.emit(relax.op.reshape(gradient, left_shape))
    if step.wanted[1]:
        flipped = step.emit(relax.op.permute_dims(matrix_left, _flip(matrix_left)))
        gradient = sum_to_shape(step, step.emit(relax.op.matmul(flipped, matrix_dy)), matrix_right)
        results[1] = step.emit(relax.op.reshape(gradient, right_shape))
    return results


def _flip(expr: Any) -> list[int]:
    rank = len(shape_of(expr))
    return [*range(rank - 2), rank - 1, rank - 2]


MATMUL_RULES: Mapping[str, Rule] = {"relax.matmul": Rule(forward=_forward, backward=_backward)}
