"""Adapters (trained beside a frozen weight) as plain data, and how they merge into the weight. No TVM here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Matrices A (rank, inputs) and B (outputs, rank) beside a weight; for a convolution A is a kernel, B is 1 × 1.

    `transposed` weights are stored (inputs, outputs), as MatMul has them.
    """

    weight: str
    rank: int
    alpha: float
    transposed: bool

    @property
    def down(self) -> str:
        """The name of A."""
        return f"lora.A:{self.weight}"

    @property
    def up(self) -> str:
        """The name of B."""
        return f"lora.B:{self.weight}"

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @property
    def tensors(self) -> tuple[str, ...]:
        return (self.down, self.up)

    def merged(self, weight: Array, parameters: Mapping[str, Array]) -> Array:
        """W + (alpha / rank) · B·A in the weight's own layout and type, computed in float64."""
        down, up = (parameters[n].astype(np.float64) for n in self.tensors)
        product = up.reshape(-1, self.rank) @ down.reshape(self.rank, -1)
        shaped = product.T if self.transposed else product.reshape(weight.shape)
        return np.asarray(weight.astype(np.float64) + self.scale * shaped, dtype=weight.dtype)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "lora", **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta:
    """What training adds to the outputs `rows` of a weight, in that order; `axis` of the weight counts outputs."""

    weight: str
    rows: tuple[int, ...]  # rising
    axis: int

    @property
    def delta(self) -> str:
        return f"sparse.rows:{self.weight}"

    @property
    def tensors(self) -> tuple[str, ...]:
        return (self.delta,)

    def merged(self, weight: Array, parameters: Mapping[str, Array]) -> Array:
        """The weight with the delta added to its chosen rows."""
        result = weight.astype(np.float64)
        np.moveaxis(result, self.axis, 0)[list(self.rows)] += np.moveaxis(parameters[self.delta], self.axis, 0)
        return result.astype(weight.dtype)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "rows", **asdict(self)}


Beside = Adapter | RowDelta


def beside_from_json(data: Mapping[str, Any]) -> Beside:
    """The inverse of both `to_json`."""
    fields = {key: value for key, value in data.items() if key != "kind"}
    return Adapter(**fields) if data["kind"] == "lora" else RowDelta(**{**fields, "rows": tuple(fields["rows"])})


def merge_adapters(parameters: Mapping[str, Array], adapters: Iterable[Beside]) -> dict[str, Callable[[], Array]]:
    """The parameters of the model without adapters that computes the same as the one with them; made when asked."""
    result: dict[str, Callable[[], Array]] = {
        name: functools.partial(_given, value) for name, value in parameters.items()
    }
    for adapter in adapters:
        result[adapter.weight] = functools.partial(_merged, adapter, result[adapter.weight], parameters)
        for name in adapter.tensors:
            del result[name]
    return result


def _given(value: Array) -> Array:
    return value


def _merged(adapter: Beside, weight: Callable[[], Array], parameters: Mapping[str, Array]) -> Array:
    return adapter.merged(weight(), parameters)
