"""Matrix products, reductions, softmax, elementwise chains and updates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from edgetrain._tvm import te, topi
from edgetrain.graph.gradients.matmul import matmul_nn, matmul_nt, matmul_tn
from edgetrain.graph.optimizers import OPTIMIZERS
from edgetrain.graph.options import OptimizerOptions
from tests.edgetrain.compiler.kernel_case import Array, KernelCase


def _products() -> Iterator[KernelCase]:
    kinds: dict[str, tuple[Any, str]] = {
        "nn": (matmul_nn, "...ik,...kj->...ij"),
        "nt": (matmul_nt, "...ik,...jk->...ij"),
        "tn": (matmul_tn, "...ki,...kj->...ij"),
    }
    sizes = {"divides": (16, 24, 32), "prime": (7, 13, 11)}
    for kind, (compute, formula) in kinds.items():
        for size, (rows, columns, depth) in sizes.items():
            for batch in ((), (3,)) if kind == "nn" else ((),):
                left = (rows, depth) if kind[0] == "n" else (depth, rows)
                right = (depth, columns) if kind[1] == "n" else (columns, depth)
                yield KernelCase(
                    name=f"{'batched ' if batch else ''}matmul {kind}, {size}",
                    compute=compute,
                    inputs=((*batch, *left), (*batch, *right)),
                    expected=partial(np.einsum, formula),
                    vector_rule="packed-product",
                    scalar_rule="register-tile",
                )


def _softmax(x: Array) -> Array:
    """Of differences in single precision: what is lost there no exponential brings back."""
    exponentials = np.exp((x - x.max(-1, keepdims=True)).astype(np.float32).astype(np.float64))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def _softmax_gradient(dy: Any, y: Any) -> Any:
    rows, columns = (int(extent) for extent in y.shape)
    k = te.reduce_axis((0, columns), "k")
    total = te.compute((rows,), lambda i: te.sum(dy[i, k] * y[i, k], axis=k), name="total")
    return te.compute(y.shape, lambda i, j: (dy[i, j] - total[i]) * y[i, j], name="gradient")


def _rows() -> Iterator[KernelCase]:
    """Reductions of rows and of columns, softmax, and elementwise chains."""
    one = np.float32(1.0)
    for size, shape in {"divides": (16, 64), "prime": (7, 61)}.items():
        yield KernelCase(
            name=f"sum of rows, {size}", compute=lambda x: topi.sum(x, 1), inputs=(shape,), expected=lambda x: x.sum(1)
        )
        yield KernelCase(
            name=f"sum of columns, {size}",
            compute=lambda x: topi.sum(x, 0),
            inputs=(shape,),
            expected=lambda x: x.sum(0),
        )
        yield KernelCase(
            name=f"largest of rows, {size}",
            compute=lambda x: topi.max(x, 1),
            inputs=(shape,),
            expected=lambda x: x.max(1),
            tolerance=0.0,
        )

        def wide(random: np.random.Generator, shape: tuple[int, ...] = shape) -> list[Array]:
            return [random.standard_normal(shape).astype(np.float32) * np.float32(30)]

        yield KernelCase(
            name=f"softmax, {size}",
            vector_rule="rows",
            compute=topi.nn.softmax,
            inputs=(shape,),
            expected=_softmax,
            draw=wide,
            relative=1e-6,
            tolerance=1e-37,
        )
        yield KernelCase(
            name=f"log-softmax, {size}",
            vector_rule="rows",
            compute=topi.nn.log_softmax,
            inputs=(shape,),
            expected=lambda x: np.log(_softmax(x)),
        )
        yield KernelCase(
            name=f"softmax gradient, {size}",
            vector_rule="rows",
            compute=_softmax_gradient,
            inputs=(shape, shape),
            expected=lambda dy, y: (dy - (dy * y).sum(1, keepdims=True)) * y,
        )
        yield KernelCase(
            name=f"elementwise chain, {size}",
            compute=lambda x, y: topi.nn.relu(topi.add(topi.multiply(x, y), topi.exp(x))),
            inputs=(shape, shape),
            expected=lambda x, y: np.maximum(x * y + np.exp(x), 0.0),
        )
        yield KernelCase(
            name=f"gelu, {size}",
            compute=lambda x: te.compute(x.shape, lambda i, j: x[i, j] * (one + te.erf(x[i, j]))),
            inputs=(shape,),
            expected=lambda x: x * np.vectorize(math.erfc)(-x),
            needs_libm=True,
        )
        yield KernelCase(
            name=f"tanh and sigmoid, {size}",
            compute=lambda x: topi.multiply(topi.tanh(x), topi.sigmoid(x)),
            inputs=(shape,),
            expected=lambda x: np.tanh(x) / (1.0 + np.exp(-x)),
            needs_libm=True,
        )


def _updates() -> Iterator[KernelCase]:
    for size, shape in {"divides": (8, 32), "prime": (7, 13)}.items():
        sgd = OPTIMIZERS["sgd"](OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=0.01))

        def expected(p: Array, g: Array, m: Array, rate: Array) -> list[Array]:
            velocity = 0.9 * m + g + 0.01 * p
            return [p - rate * velocity, velocity]

        yield KernelCase(
            name=f"update in place, {size}",
            compute=sgd.update,
            inputs=(shape, shape, shape, ()),
            expected=expected,
            in_place=(0, 2),
        )


def row_cases() -> Iterator[KernelCase]:
    for family in (_products, _rows, _updates):
        yield from family()
