"""What both ways to slide a window share: the plane, the tiling, and which tap is multiplied with which row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgetrain_tuner.rules.loops import VECTORIZED, Loops
from edgetrain_tuner.rules.window.form import ChannelWindow
from edgetrain_tuner.rules.window.planes import Plane
from edgetrain_tuner.rules.window.tiling import WindowTile, WindowTiling


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TapProduct:
    """A tap is multiplied with the element at `place` in the plane, for a row of the tile and its first column."""

    place: int
    row: int
    tap_row: int
    tap_column: int


@dataclass(frozen=True, kw_only=True)
class Sliding:
    window: ChannelWindow
    tiling: WindowTiling
    loops: Loops
    plane: Plane

    @staticmethod
    def over(window: ChannelWindow, tiling: WindowTiling) -> Sliding:
        loops = Loops(str(window.contraction.k[0].variable.ty.dtype))
        plane = Plane.of(loops, window.b, window.rows, window.columns, tiling, count=tiling.planes)
        return Sliding(window=window, tiling=tiling, loops=loops, plane=plane)

    @property
    def tile(self) -> WindowTile:
        return self.tiling.tile

    @property
    def tile_pitch(self) -> int:
        """In the plane, from one tile of rows to the next."""
        return self.tile.rows * self.window.rows.stride * self.plane.pitch

    def first_row(self, band: Any) -> Any:
        return band * (self.tiling.band_tiles * self.tile.rows)

    def vector(self, body: Callable[[Any], Any]) -> Any:
        return self.loops.loop("lane", self.tile.lanes, body, VECTORIZED)

    def tap_products(self, phases: tuple[int, int], tap_rows: range) -> list[TapProduct]:
        """All products of a tile, in the order of the plane: a load is used at once, and registers hold only sums.

        Rows of padding are left out where they are known.
        """
        rows, columns, plane = self.window.rows, self.window.columns, self.plane
        is_known = self.tiling.row_tiles == 1

        def is_padding(row: int, r: int) -> bool:
            return row * rows.stride + rows.offset(r, phases[0]) - rows.low not in plane.rows_inside

        return sorted(
            TapProduct(
                place=plane.at(row_offset=rows.offset(r, phases[0]), column_offset=columns.offset(s, phases[1]))
                + row * rows.stride * plane.pitch,
                row=row,
                tap_row=r,
                tap_column=s,
            )
            for row in range(self.tile.rows)
            for r in tap_rows
            for s in range(columns.tap.extent)
            if not (is_known and is_padding(row, r))
        )
