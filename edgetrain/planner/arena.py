"""Gives each stay (a tensor while it is in memory) an offset in one arena, so that the peak is known before the run.

Packing stays of fixed times into the least height is NP-hard. This module packs best fit in a few orders. It then packs
the stays at the top first and the rest again, while that helps. Training graphs mostly reach the lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edgetrain.graph.ir import ALIGNMENT_BYTES
from edgetrain.planner.plan import PAGE_BYTES, Placement, Stay

_Integers = npt.NDArray[np.int64]

# Repacking costs O(stays²) in numpy; this many stay placements keep the whole search well under two seconds.
_REPACK_WORK = 12_000
MAX_REPACKS = 60
_NEARLY_BOUND = 1.01  # no more is asked of a packing that is enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Offsets for every stay. `lower_bound_bytes` is the most that is live at once: no packer can do with less."""

    placements: tuple[Placement, ...]
    arena_bytes: int
    lower_bound_bytes: int


def pack(stays: Sequence[Stay], *, enough_bytes: int = 0, repacks: int = MAX_REPACKS) -> Packing:
    """Gives every stay an offset such that stays that are in memory at the same step do not overlap.

    Offsets are multiples of 64, of 4096 for paged stays, and of whatever all sizes are multiples of. The search stops
    early once it needs no more than `enough_bytes` and hardly more than the bound, and after so many `repacks`. The
    same stays give the same offsets.
    """
    table = _Table.of(stays)
    lower_bound = table.lower_bound_bytes()
    # Enough is no reason to leave holes: what the arena needs beyond the bound is the planner's fragmentation.
    target = max(lower_bound, min(enough_bytes, int(_NEARLY_BOUND * lower_bound)))
    order, best_offsets = _best_of_orders(table, target)
    offsets = best_offsets
    for _ in range(min(repacks, _REPACK_WORK // max(1, len(stays)))):
        if table.height(best_offsets) <= target:
            break
        order = _sticking_out_first(table, order, offsets)
        offsets = table.place(order)
        best_offsets = min(best_offsets, offsets, key=table.height)
    placements = tuple(
        Placement(tensor=stay.tensor, start=stay.start, end=stay.end, offset=int(offset), nbytes=stay.nbytes)
        for stay, offset in zip(stays, best_offsets, strict=True)
    )
    return Packing(placements=placements, arena_bytes=table.height(best_offsets), lower_bound_bytes=lower_bound)


def shift(placements: Sequence[Placement], offset: int) -> tuple[Placement, ...]:
    """The same placements, `offset` bytes further on."""
    return tuple(replace(placement, offset=placement.offset + offset) for placement in placements)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Stays as columns."""

    start: _Integers
    end: _Integers
    nbytes: _Integers
    alignment: _Integers

    @classmethod
    def of(cls, stays: Sequence[Stay]) -> _Table:
        return cls(
            start=np.array([stay.start for stay in stays], dtype=np.int64),
            end=np.array([stay.end for stay in stays], dtype=np.int64),
            nbytes=np.array([stay.nbytes for stay in stays], dtype=np.int64),
            alignment=np.array([PAGE_BYTES if stay.paged else ALIGNMENT_BYTES for stay in stays], dtype=np.int64),
        )

    def lower_bound_bytes(self) -> int:
        if not len(self.start):
            return 0
        change = np.zeros(int(self.end.max()) + 2, dtype=np.int64)
        np.add.at(change, self.start, self.nbytes)
        np.add.at(change, self.end + 1, -self.nbytes)
        return int(np.cumsum(change).max())

    def height(self, offsets: _Integers) -> int:
        return int((offsets + self.nbytes).max(initial=0))

    def place(self, order: _Integers) -> _Integers:
        """Best fit: each stay, in the given order, goes to the smallest gap that takes it, the lowest of equals."""
        count = len(order)
        offsets = np.zeros(count, dtype=np.int64)
        # What is placed already, as rows start, end, offset, top: sorted by offset, so that one pass reads the gaps.
        placed = np.empty((4, count), dtype=np.int64)
        for index, stay in enumerate(order):
            start, end, nbytes = self.start[stay], self.end[stay], self.nbytes[stay]
            now = placed[:, :index]
            together = now[2:, (now[0] <= end) & (now[1] >= start)]
            offset = self._best_gap(int(nbytes), int(self.alignment[stay]), together[0], together[1])
            offsets[stay] = offset
            at = int(np.searchsorted(now[2], offset))
            placed[:, at + 1 : index + 1] = placed[:, at:index].copy()
            placed[:, at] = start, end, offset, offset + nbytes
        return offsets

    @staticmethod
    def _best_gap(nbytes: int, alignment: int, offsets: _Integers, tops: _Integers) -> int:
        if not len(offsets):
            return 0
        gap_starts = np.zeros(len(offsets) + 1, dtype=np.int64)
        np.maximum.accumulate(tops, out=gap_starts[1:])
        gap_starts = -(-gap_starts // alignment) * alignment
        room = offsets - gap_starts[:-1]  # the last gap has no end
        fits = np.flatnonzero(room >= nbytes)
        if not len(fits):
            return int(gap_starts[-1])
        return int(gap_starts[fits[np.argmin(room[fits])]])


_Key = Callable[[_Table], tuple[_Integers, ...]]

# np.lexsort sorts by the last key first; ties fall to the earlier keys, and at last to the given order.
_ORDERS: Mapping[str, _Key] = {
    "largest first": lambda t: (t.start, -t.nbytes),
    "longest first": lambda t: (-t.nbytes, t.start - t.end),
    "most byte-steps first": lambda t: (t.start, -t.nbytes * (t.end - t.start + 1)),
    "as they begin": lambda t: (-t.nbytes, t.start),
}


def _best_of_orders(table: _Table, target: int) -> tuple[_Integers, _Integers]:
    """The order that packs lowest, with its offsets; the first that is good enough ends the search."""
    tried: list[tuple[_Integers, _Integers]] = []
    for key in _ORDERS.values():
        order = np.lexsort(key(table))
        tried.append((order, table.place(order)))
        if table.height(tried[-1][1]) <= target:
            return tried[-1]
    return min(tried, key=lambda pair: table.height(pair[1]))


def _sticking_out_first(table: _Table, order: _Integers, offsets: _Integers) -> _Integers:
    """Moves the stays that reach the arena's top to the front of the order."""
    tops = offsets + table.nbytes
    sticks_out = tops[order] >= tops.max()
    return np.concatenate((order[sticks_out], order[~sticks_out]))
