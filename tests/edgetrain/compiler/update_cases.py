"""Weight gradients with the optimizer's update behind them, in place, as `compiler/fuse_updates.py` makes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain._tvm import te, tirx
from edgetrain.compiler.fuse_updates import joint_function
from edgetrain.graph.gradients.indexing import scatter_add
from edgetrain.graph.optimizers import OPTIMIZERS
from edgetrain.graph.options import OptimizerOptions
from tests.edgetrain.compiler.kernel_case import Array, KernelCase
from tests.edgetrain.compiler.row_cases import row_cases
from tests.edgetrain.compiler.window_cases import window_cases

_MOMENTUM = OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=0.01)
_ADAM = OptimizerOptions(kind="adamw", weight_decay=0.01)
_GRADIENTS = ("matmul tn", "weight gradient")  # in the names of cases
_NOT_WRITTEN_OUT = "generic"


@dataclass(frozen=True, slots=True)
class _Momentum:
    """p, velocity and the rate, then what the gradient is made of."""

    gradient: KernelCase

    def compute(self, p: Any, velocity: Any, rate: Any, *given: Any) -> Any:
        return OPTIMIZERS["sgd"](_MOMENTUM).update(p, self.gradient.compute(*given), velocity, rate)

    def expected(self, p: Array, velocity: Array, rate: Array, *given: Array) -> list[Array]:
        new = 0.9 * velocity + self.gradient.expected(*given) + 0.01 * p
        return [p - rate * new, new]


@dataclass(frozen=True, slots=True)
class _Adam:
    """p, both moments, the rate and both corrections, then what the gradient is made of."""

    gradient: KernelCase

    def compute(self, p: Any, mean: Any, square: Any, rate: Any, first: Any, second: Any, *given: Any) -> Any:
        state = (mean, square, rate, first, second)
        return OPTIMIZERS["adamw"](_ADAM).update(p, self.gradient.compute(*given), *state)

    def expected(
        self, p: Array, mean: Array, square: Array, rate: Array, first: Array, second: Array, *given: Array
    ) -> list[Array]:
        gradient = self.gradient.expected(*given)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        spread = np.sqrt(square) / np.sqrt(second) + 1e-8
        return [p - p * rate * 0.01 - rate / first * mean / spread, mean, square]


def _embedding(size: str, rows: int, columns: int, lookups: int) -> KernelCase:
    """Lookups in a table, some of them beyond its ends: their gradients are summed and the table is updated."""
    table, looked_up = (rows, columns), (lookups, columns)

    def compute(*_tensors: Any) -> Any:
        gradient = scatter_add(before=1, count=lookups, after=columns, rows=rows, dtype="float32", index_dtype="int32")
        p, g, velocity = (te.placeholder([tirx.IntImm("int64", n) for n in table], name=name) for name in "pgv")
        rate = te.placeholder((), name="rate")
        results = OPTIMIZERS["sgd"](_MOMENTUM).update(p, g, velocity, rate)
        update = te.create_prim_func([p, g, velocity, rate, *results])
        return joint_function(gradient, update, 1, outputs=len(results))

    def expected(indices: Array, dy: Array, p: Array, velocity: Array, rate: Array) -> list[Array]:
        gradient = np.zeros(table)
        np.add.at(gradient, np.clip(indices, 0, rows - 1), dy)
        new = 0.9 * velocity + gradient + 0.01 * p
        return [p - rate * new, new]

    def draw(random: np.random.Generator) -> list[Array]:
        floats = [random.standard_normal(shape).astype(np.float32) for shape in (looked_up, table, table, ())]
        return [random.integers(-2, rows + 2, lookups).astype(np.int32), *map(np.asarray, floats)]

    return KernelCase(
        name=f"embedding with update, {size}",
        compute=compute,
        inputs=((lookups,), looked_up, table, table, ()),
        dtypes=("int32", *["float32"] * 4),
        expected=expected,
        vector_rule="scatter",
        scalar_rule="scatter",
        draw=draw,
        in_place=(2, 3),
    )


def update_cases() -> Iterator[KernelCase]:
    """For every weight gradient that a rule writes out, one with momentum; for the matrix products one with Adam."""
    yield _embedding("divides", 32, 16, 24)
    yield _embedding("prime", 29, 13, 37)
    for case in (*row_cases(), *window_cases()):
        if not any(name in case.name for name in _GRADIENTS) or case.vector_rule == _NOT_WRITTEN_OUT:
            continue
        shape = tuple(int(extent) for extent in case.function.params[-1].ty.shape)
        yield _with_update(case, "momentum", _Momentum(case), [shape] * 2, scalars=1)
        if "matmul" in case.name:
            yield _with_update(case, "Adam", _Adam(case), [shape] * 3, scalars=3)


def _with_update(
    case: KernelCase, name: str, update: _Momentum | _Adam, states: list[tuple[int, ...]], *, scalars: int
) -> KernelCase:
    inputs = (*states, *[()] * scalars, *case.inputs)

    def draw(random: np.random.Generator) -> list[Array]:
        """Positive: a second moment is, and so are rates."""
        own = [random.random(shape).astype(np.float32) + np.float32(0.25) for shape in inputs[: len(states) + scalars]]
        return [*own, *case.arrays()]

    return KernelCase(
        name=f"{case.name}, {name}",
        compute=update.compute,
        inputs=inputs,
        expected=update.expected,
        vector_rule=case.vector_rule,
        scalar_rule=case.scalar_rule,
        draw=draw,
        in_place=tuple(range(len(states))),
        needs_libm=case.needs_libm,
    )
