"""A block of rows becomes one of columns, in registers: what lies along one axis is written along another, by vectors.

Element by element, a copy across rows costs ten times what a copy in the order of memory costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.contraction import Contraction, is_contiguous, is_stored_along, unguarded
from edgetrain_tuner.rules.loops import REGISTERS, VECTORIZED, Loops, sequence
from edgetrain_tuner.rules.tiles import Tile

_LEAST_ROWS = 4  # fewer are not worth the stages
_ZERO = tirx.FloatImm("float32", 0.0)


def padded_rows(rows: int) -> int:
    """How many rows a block is turned with: the least power of two that is not smaller, and not 1."""
    return 1 << max(1, (rows - 1).bit_length())


def turns_panel(contraction: Contraction, tile: Tile, depth_shape: Sequence[int]) -> bool:
    """Whether panels of B are copied by blocks that are turned: it lies along k, and nothing of it is left out."""
    guard, element = unguarded(contraction.b)
    if guard is not None or contraction.present is not None or contraction.limits or tile.used_width < _LEAST_ROWS:
        return False
    if is_contiguous(element, contraction.j[-1]) or not is_contiguous(element, contraction.k[-1]):
        return False
    is_whole = all(axis.extent % size == 0 for axis, size in zip(contraction.j, tile.shape, strict=True))
    run, last_run = depth_shape[-1], contraction.k[-1].extent % depth_shape[-1]
    return is_whole and run >= tile.lanes and (last_run == 0 or last_run >= tile.lanes)


def turns_sums(contraction: Contraction, tile: Tile) -> bool:
    """Whether a tile of sums is stored by columns that are turned: its rows are what follows each other in memory."""
    is_long = tile.row_shape[-1] >= _LEAST_ROWS and tile.lanes >= _LEAST_ROWS
    return is_long and is_stored_along(contraction, contraction.i[-1])


def turned(
    loops: Loops,
    rows: int,
    lanes: int,
    read: Callable[[int, Any], Any],
    write: Callable[[int, Any, Any], Any],
) -> Any:
    """`write(column, row, read(row, column))` for a block of `rows` by `lanes`, a power of two that is not smaller.

    Both work by vectors: `read` along a row, `write` down a column, which `padded_rows` makes longer with zeros.

    Each stage takes a bit of the column from the lanes' number to the registers', and one of the row the other way: the
    even lanes of two registers become one, their odd lanes another.
    """
    count = padded_rows(rows)
    held = _registers(count * lanes)
    statements = [tirx.AllocBuffer(held)]
    for row in range(count):
        element = partial(read, row) if row < rows else _nothing
        statements.append(_vector(loops, lanes, partial(_hold, held, row * lanes, element)))
    for bit in range(count.bit_length() - 1):
        source, held = held, _registers(count * lanes)
        statements.append(tirx.AllocBuffer(held))
        statements += [_dealt(loops, source, held, number, 1 << bit, lanes) for number in range(count)]
    columns = _registers(count * lanes)
    statements.append(tirx.AllocBuffer(columns))
    for column in range(lanes):
        statements.append(_column(loops, held, columns, column, count, lanes))
        statements.append(_vector(loops, count, partial(_put, columns, column, count, write)))
    return sequence(*statements)


def _registers(elements: int) -> Any:
    return tirx.decl_buffer((elements,), "float32", "held", scope=REGISTERS)


def _nothing(_column: Any) -> Any:
    return _ZERO


def _hold(held: Any, start: int, element: Callable[[Any], Any], lane: Any) -> Any:
    return tirx.BufferStore(held, element(lane), [lane + start])


def _vector(loops: Loops, lanes: int, body: Callable[[Any], Any]) -> Any:
    return loops.loop("lane", lanes, body, VECTORIZED)


def _dealt(loops: Loops, source: Any, held: Any, number: int, stage: int, lanes: int) -> Any:
    """The even or odd lanes of two registers that are `stage` apart, as that bit of the number says."""
    pair = [number & ~stage, number | stage]
    places = [tirx.Ramp(loops.number(at * lanes), loops.number(1), lanes) for at in (*pair, number)]
    indices = [loops.number(index) for index in range(1 if number & stage else 0, 2 * lanes, 2)]
    lanes_of_both = tirx.Shuffle([source[place] for place in places[:2]], indices)
    return tirx.BufferStore(held, lanes_of_both, [places[2]])


def _column(loops: Loops, held: Any, columns: Any, column: int, rows: int, lanes: int) -> Any:
    """Takes a column out of its register, where as many lie as the register is longer than they are."""
    part, number = divmod(column, rows)
    indices = [loops.number(row * (lanes // rows) + part) for row in range(rows)]
    register = held[tirx.Ramp(loops.number(number * lanes), loops.number(1), lanes)]
    taken = register if rows == lanes else tirx.Shuffle([register], indices)
    return tirx.BufferStore(columns, taken, [tirx.Ramp(loops.number(column * rows), loops.number(1), rows)])


def _put(columns: Any, column: int, rows: int, write: Callable[[int, Any, Any], Any], row: Any) -> Any:
    return write(column, row, columns[row + column * rows])
