"""The products of transformed tiles, added up in registers: where most of the time of Winograd's algorithm goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.loops import REGISTERS, UNROLLED, VECTORIZED, Loops, sequence

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class RegisterSums:
    """`rows` by `vectors` of sums, which are kept in `buffer` while their registers hold others."""

    loops: Loops
    rows: int
    vectors: int
    lanes: int
    buffer: Any

    def add(
        self,
        depth: Any,
        product: Callable[[Any, Any, Any], Any],
        kept: Callable[[Any, Any], Sequence[Any]],
        is_first: Any | None,
    ) -> Any:
        """Adds `product(step, row, column)` of all steps, and keeps each sum at `kept(row, column)`.

        Sums begin at zero where `is_first` holds, or always if it is None; elsewhere they go on from what is kept.
        """
        width = self.vectors * self.lanes
        sums = tirx.decl_buffer((self.rows * width,), "float32", "sums", scope=REGISTERS)

        def to_sum(value: Callable[[Any, Any], Any]) -> Any:
            return self._each(lambda row, column: tirx.BufferStore(sums, value(row, column), [row * width + column]))

        def step(number: Any) -> Any:
            return to_sum(lambda row, column: sums[row * width + column] + product(number, row, column))

        begin = to_sum(lambda _row, _column: _ZERO)
        if is_first is not None:
            resume = to_sum(lambda row, column: self.buffer[tuple(kept(row, column))])
            begin = tirx.IfThenElse(is_first, begin, resume)
        keep = self._each(
            lambda row, column: tirx.BufferStore(self.buffer, sums[row * width + column], list(kept(row, column)))
        )
        return sequence(tirx.AllocBuffer(sums), begin, self.loops.loop("depth", depth, step), keep)

    def _each(self, body: Callable[[Any, Any], Any]) -> Any:
        """`body` for every row and column, all of it unrolled into vector instructions."""

        def vector(row: Any, number: Any) -> Any:
            lanes = self.lanes
            return self.loops.loop("lane", lanes, lambda lane: body(row, number * lanes + lane), VECTORIZED)

        def vectors(row: Any) -> Any:
            return self.loops.loop("vector", self.vectors, lambda number: vector(row, number), UNROLLED)

        return self.loops.loop("row", self.rows, vectors, UNROLLED)
