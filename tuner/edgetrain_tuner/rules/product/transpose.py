"""Transposes a block in registers, so that rows are read by vectors and columns are written by vectors.

A copy that transposes element by element costs ten times as much as a copy in the order of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Contraction, is_contiguous, is_stored_along, unguarded
from edgetrain_tuner.rules.loops import REGISTERS, VECTORIZED, Loops, sequence
from edgetrain_tuner.rules.product.tiles import Tile

_ZERO = tirx.FloatImm("float32", 0.0)


def padded_rows(rows: int) -> int:
    """The rows of a block with padding: the least power of two from 2 on that holds them."""
    return 1 << max(1, (rows - 1).bit_length())


def transposes_panel(contraction: Contraction, tile: Tile, depth_shape: Sequence[int], machine: Machine) -> bool:
    """Whether panels of B are transposed in registers: B is contiguous along k, and has no padding."""
    guard, element = unguarded(contraction.b)
    if guard is not None or contraction.present is not None or contraction.limits:
        return False
    if tile.used_width < machine.thresholds.transposed_rows:
        return False
    if is_contiguous(element, contraction.j[-1]) or not is_contiguous(element, contraction.k[-1]):
        return False
    is_whole = all(axis.extent % size == 0 for axis, size in zip(contraction.j, tile.shape, strict=True))
    run, last_run = depth_shape[-1], contraction.k[-1].extent % depth_shape[-1]
    return is_whole and run >= tile.lanes and (last_run == 0 or last_run >= tile.lanes)


def transposes_sums(contraction: Contraction, tile: Tile, machine: Machine) -> bool:
    """Whether a tile of sums is transposed before it is stored: the result is contiguous along the tile's rows."""
    is_long = min(tile.row_shape[-1], tile.lanes) >= machine.thresholds.transposed_rows
    return is_long and is_stored_along(contraction, contraction.i[-1])


def transpose_block(
    loops: Loops,
    rows: int,
    lanes: int,
    read: Callable[[int, Any], Any],
    write: Callable[[int, Any, Any], Any],
) -> Any:
    """`write(column, row, read(row, column))` for a block of `rows` by `lanes`.

    `lanes` is a power of two and not less than `rows`. Both are vectorised: `read` along a row, `write` along a column,
    which is padded with zeros to `padded_rows`.

    Each stage deinterleaves pairs of registers: the even lanes of both become one register, the odd lanes another. So
    one bit of the column index moves from the lane to the register, and one bit of the row index the other way.
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
        statements += [_even_or_odd_lanes(loops, source, held, number, 1 << bit, lanes) for number in range(count)]
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


def _even_or_odd_lanes(loops: Loops, source: Any, held: Any, number: int, stage: int, lanes: int) -> Any:
    """The even lanes of two registers that are `stage` apart, or the odd ones if that bit of `number` is set."""
    pair = [number & ~stage, number | stage]
    places = [tirx.Ramp(loops.number(at * lanes), loops.number(1), lanes) for at in (*pair, number)]
    indices = [loops.number(index) for index in range(1 if number & stage else 0, 2 * lanes, 2)]
    lanes_of_both = tirx.Shuffle([source[place] for place in places[:2]], indices)
    return tirx.BufferStore(held, lanes_of_both, [places[2]])


def _column(loops: Loops, held: Any, columns: Any, column: int, rows: int, lanes: int) -> Any:
    """Takes one column out of its register, which holds several where rows are fewer than lanes."""
    part, number = divmod(column, rows)
    indices = [loops.number(row * (lanes // rows) + part) for row in range(rows)]
    register = held[tirx.Ramp(loops.number(number * lanes), loops.number(1), lanes)]
    taken = register if rows == lanes else tirx.Shuffle([register], indices)
    return tirx.BufferStore(columns, taken, [tirx.Ramp(loops.number(column * rows), loops.number(1), rows)])


def _put(columns: Any, column: int, rows: int, write: Callable[[int, Any, Any], Any], row: Any) -> Any:
    return write(column, row, columns[row + column * rows])
