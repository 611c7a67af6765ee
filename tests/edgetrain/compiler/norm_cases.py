"""Layer norm and batch norm, forward and backward, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from edgetrain.graph.gradients import group_norm, normalisation
from tests.edgetrain.compiler.kernel_case import Array, KernelCase

EPSILON = 1e-5


def _layer_norm(shape: tuple[int, int], size: str) -> Iterator[KernelCase]:
    rows, columns = shape
    grouping = group_norm.over_axes(shape, (1,))

    def normal(x: Array, inverse: Array, mean: Array) -> Array:
        return (x - mean[:, None]) * inverse[:, None]

    yield KernelCase(
        name=f"layer norm mean, {size}",
        compute=partial(group_norm.group_mean, grouping=grouping),
        inputs=(shape,),
        expected=lambda x: x.mean(1),
    )
    yield KernelCase(
        name=f"layer norm deviation, {size}",
        scalar_rule="register-tile",
        compute=partial(group_norm.group_deviation_inverse, grouping=grouping, epsilon=EPSILON),
        inputs=(shape, (rows,)),
        expected=lambda x, mean: 1 / np.sqrt(((x - mean[:, None]) ** 2).mean(1) + EPSILON),
    )
    yield KernelCase(
        name=f"layer norm, {size}",
        compute=partial(group_norm.group_norm_apply, grouping=grouping),
        inputs=(shape, (rows,), (columns,), (rows,), (columns,)),
        expected=lambda x, inverse, gamma, mean, beta: normal(x, inverse, mean) * gamma + beta,
    )
    yield KernelCase(
        name=f"layer norm scale gradient, {size}",
        scalar_rule="register-tile",
        compute=partial(group_norm.scale_gradient, grouping=grouping),
        inputs=(shape, shape, (rows,), (rows,)),
        expected=lambda dy, x, inverse, mean: (dy * normal(x, inverse, mean)).sum(0),
    )
    yield KernelCase(
        name=f"layer norm stretch, {size}",
        scalar_rule="register-tile",
        compute=partial(group_norm.group_stretch, grouping=grouping),
        inputs=(shape, (columns,), shape, (rows,), (rows,)),
        expected=lambda dy, gamma, x, inverse, mean: (dy * gamma * normal(x, inverse, mean)).mean(1),
    )
    yield KernelCase(
        name=f"layer norm data gradient, {size}",
        compute=partial(group_norm.group_norm_data_gradient, grouping=grouping),
        inputs=(shape, (columns,), shape, (rows,), (rows,), (rows,), (rows,)),
        expected=lambda dy, gamma, x, inverse, stretch, mean, pull: (
            (dy * gamma - normal(x, inverse, mean) * stretch[:, None] - pull[:, None]) * inverse[:, None]
        ),
    )


def _batch_norm(shape: tuple[int, ...], size: str) -> Iterator[KernelCase]:
    channels = (shape[1],)
    count = shape[0] * shape[2] * shape[3]

    def wide(*values: Array) -> list[Array]:
        return [v[:, None, None] for v in values]

    def applied(x: Array, mean: Array, inverse: Array, gamma: Array, beta: Array) -> Array:
        mean, scale, beta = wide(mean, inverse * gamma, beta)
        return (x - mean) * scale + beta

    def gradient(dy: Array, x: Array, *values: Array) -> Array:
        mean, inverse, gamma, gamma_gradient, beta_gradient = wide(*values)
        normal = (x - mean) * inverse
        return np.asarray((dy - (beta_gradient + normal * gamma_gradient) / count) * gamma * inverse)

    yield KernelCase(
        name=f"batch norm mean, {size}",
        shared_rule="plane-sums",
        compute=partial(normalisation.batch_norm_mean, count=count),
        inputs=(shape,),
        expected=lambda x: x.mean((0, 2, 3)),
    )
    yield KernelCase(
        name=f"batch norm variance, {size}",
        shared_rule="plane-sums",
        scalar_rule="register-tile",
        compute=partial(normalisation.batch_norm_variance, count=count),
        inputs=(shape, channels),
        expected=lambda x, mean: ((x - mean[:, None, None]) ** 2).mean((0, 2, 3)),
    )
    yield KernelCase(
        name=f"batch norm, {size}",
        compute=normalisation.batch_norm_apply,
        inputs=(shape, *(channels,) * 4),
        expected=applied,
    )
    yield KernelCase(
        name=f"batch norm scale gradient, {size}",
        shared_rule="plane-sums",
        scalar_rule="register-tile",
        compute=normalisation.batch_norm_gamma_gradient,
        inputs=(shape, shape, channels, channels),
        expected=lambda dy, x, mean, inverse: (dy * (x - mean[:, None, None])).sum((0, 2, 3)) * inverse,
    )
    yield KernelCase(
        name=f"batch norm data gradient, {size}",
        compute=partial(normalisation.batch_norm_data_gradient, count=count),
        inputs=(shape, shape, *(channels,) * 5),
        expected=gradient,
    )


def norm_cases() -> Iterator[KernelCase]:
    yield from _layer_norm((8, 64), "divides")
    yield from _layer_norm((5, 61), "prime")
    yield from _batch_norm((2, 4, 8, 8), "divides")
    yield from _batch_norm((5, 3, 7, 7), "prime")
