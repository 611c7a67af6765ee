"""Winograd's F(2x2, 3x3): 2 x 2 outputs of a 3 x 3 convolution from 16 products instead of 36.

A 4 x 4 tile of the image and a filter are each transformed into 16 numbers. These are multiplied one by one and added
up over channels, and the 16 sums are transformed into 4 outputs (Lavin and Gray, 2015). Each transform is a small
matrix that is applied to rows and then to columns; it needs only additions and multiplications by one half.

The weight gradient uses the transposed matrices: that of the outputs transforms 2 x 2 of the result's gradient into 16
numbers, and that of the filters transforms the 16 sums into 3 x 3 taps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.loops import REGISTERS, VECTORIZED, Loops, sequence


@dataclass(frozen=True, kw_only=True)
class Transform:
    """`line` transforms `inputs` numbers into `outputs`; `adds` counts the operations of both directions."""

    inputs: int
    outputs: int
    line: Callable[[Sequence[Any]], Sequence[Any]]
    adds: int

    def write(
        self,
        loops: Loops,
        lanes: int,
        load: Callable[[int, int, Any], Any],
        store: Callable[[int, int, Any, Any], Any],
    ) -> Any:
        """Of a vector of tiles: `load(row, column, lane)` is an element, `store(row, column, lane, value)` keeps one.

        The numbers between both directions stay in registers, as far as there are enough.
        """
        between = tirx.decl_buffer((self.inputs * self.outputs * lanes,), "float32", "between", scope=REGISTERS)

        def vector(body: Callable[[Any], Any]) -> Any:
            return loops.loop("lane", lanes, body, VECTORIZED)

        def place(row: int, column: int) -> int:
            return (row * self.outputs + column) * lanes

        def across_columns(row: int, column: int) -> Any:
            def one(lane: Any) -> Any:
                values = self.line([load(row, number, lane) for number in range(self.inputs)])
                return tirx.BufferStore(between, values[column], [place(row, column) + lane])

            return vector(one)

        def down_rows(row: int, column: int) -> Any:
            def one(lane: Any) -> Any:
                values = self.line([between[place(number, column) + lane] for number in range(self.inputs)])
                return store(row, column, lane, values[row])

            return vector(one)

        first = [across_columns(row, column) for row in range(self.inputs) for column in range(self.outputs)]
        second = [down_rows(row, column) for column in range(self.outputs) for row in range(self.outputs)]
        return sequence(tirx.AllocBuffer(between), *first, *second)


def _image_line(d: Sequence[Any]) -> Sequence[Any]:
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]


def _filter_line(g: Sequence[Any]) -> Sequence[Any]:
    half = tirx.FloatImm("float32", 0.5)
    outer, inner = (g[0] + g[2]) * half, g[1] * half
    return g[0], outer + inner, outer - inner, g[2]


def _result_line(m: Sequence[Any]) -> Sequence[Any]:
    return m[0] + m[1] + m[2], m[1] - m[2] - m[3]


def _gradient_line(d: Sequence[Any]) -> Sequence[Any]:
    return d[0], d[0] + d[1], d[0] - d[1], -d[1]


def _taps_line(m: Sequence[Any]) -> Sequence[Any]:
    half = tirx.FloatImm("float32", 0.5)
    outer = (m[1] + m[2]) * half
    return m[0] + outer, (m[1] - m[2]) * half, outer + m[3]


OF_IMAGE = Transform(inputs=4, outputs=4, line=_image_line, adds=32)
OF_FILTER = Transform(inputs=3, outputs=4, line=_filter_line, adds=35)
OF_RESULT = Transform(inputs=4, outputs=2, line=_result_line, adds=24)
OF_GRADIENT = Transform(inputs=2, outputs=4, line=_gradient_line, adds=18)
OF_TAPS = Transform(inputs=4, outputs=3, line=_taps_line, adds=42)
