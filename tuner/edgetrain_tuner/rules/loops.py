"""Builders for loops and index expressions, in the index type of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

REGISTERS = "local"  # the scope of buffers that a code generator must keep in registers or on the stack
SERIAL, PARALLEL = tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL
VECTORIZED, UNROLLED = tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED


@dataclass(frozen=True)
class Loops:
    dtype: str

    def number(self, value: int) -> Any:
        return tirx.IntImm(self.dtype, value)

    def loop(self, name: str, extent: Any, body: Callable[[Any], Any], kind: Any = SERIAL) -> Any:
        """`body` for every index; without a loop where there is only 0."""
        if isinstance(extent, int):
            if extent == 1 and kind != VECTORIZED:
                return body(self.number(0))
            extent = self.number(extent)
        variable = tirx.Var(name, self.dtype)
        return tirx.For(variable, self.number(0), extent, kind, body(variable))

    def along(
        self, name: str, extent: int, lanes: int, body: Callable[[Any], Any], *, with_choices: bool = False
    ) -> Any:
        """`body` for every index, vectorised; the last vector is narrower where `lanes` does not divide the extent.

        Where `body` has a call or a condition it is a plain loop, which LLVM vectorises better. `with_choices`, a
        `Select` is vectorised too: both of its values are computed in any case.
        """
        is_plain = is_straight if with_choices else is_arithmetic
        if not is_plain(body(self.number(0))):
            return self.loop(name, extent, body)

        def vector(start: Any, width: int) -> Any:
            return self.loop("lane", width, lambda lane: body(start + lane), VECTORIZED)

        whole, rest = divmod(extent, lanes)
        parts = [self.loop(name, whole, lambda number: vector(number * lanes, lanes))] if whole else []
        if rest == 1:
            parts.append(body(self.number(whole * lanes)))
        elif rest:
            parts.append(vector(self.number(whole * lanes), rest))
        return sequence(*parts)

    def deinterleave(
        self,
        count: int,
        lanes: int,
        stride: int,
        read: Callable[[Any], Any],
        write: Callable[[int, Any, Any], Any],
    ) -> Any:
        """`write(phase, n, read(n · stride + phase))` for every n below `count` and every phase of the stride.

        Vectors are read in the order of memory and deinterleaved in registers. The last vector ends with the last n, so
        it may overlap the one before.
        """
        width = min(lanes, 1 << (count.bit_length() - 1))

        def vector(start: Any) -> Any:
            held = tirx.decl_buffer((width * stride,), "float32", "held", scope=REGISTERS)

            def hold(number: int, lane: Any) -> Any:
                at = lane + number * width
                return tirx.BufferStore(held, read(start * stride + at), [at])

            def deal(phase: int, lane: Any) -> Any:
                return write(phase, start + lane, held[lane * stride + phase])

            reads, writes = (
                [self.loop("lane", width, partial(body, number), VECTORIZED) for number in range(stride)]
                for body in (hold, deal)
            )
            return sequence(tirx.AllocBuffer(held), *reads, *writes)

        whole = self.loop("vector", count // width, lambda number: vector(number * width))
        return sequence(whole, *([vector(self.number(count - width))] if count % width else []))

    def nest(self, name: str, extents: Sequence[Any], body: Callable[[list[Any]], Any]) -> Any:
        """`body` for every index of a box, the last axis innermost."""

        def descend(position: int, indices: list[Any]) -> Any:
            if position == len(extents):
                return body(indices)
            return self.loop(f"{name}{position}", extents[position], lambda v: descend(position + 1, [*indices, v]))

        return descend(0, [])

    def distribute(
        self,
        jobs: int,
        tasks: int,
        begin: Callable[[Any], list[Any]],
        job: Callable[[Any, Any], Any],
        *,
        kinds: int = 1,
        blocks: int = 1,
        most_uneven: float = 1.0,
    ) -> Any:
        """`job(task, number)` for every number, in `tasks` that run in parallel; each runs `begin(task)` first.

        A task gets consecutive numbers. Jobs may be of several `kinds`, first all of one, then as many of the next, of
        which some take longer: then a task gets the same share of each kind, and the same numbers within it. These
        write next to each other, and a cache line that two cores write travels between them. Where a share would be
        more than `most_uneven` times a fair one, task t of n gets every n-th job instead. So it does where `blocks` is
        a multiple of `tasks`: every `blocks`-th job has the same rows, and a task then keeps to its own rows.
        """
        of_a_kind = jobs // kinds
        share = -(-of_a_kind // tasks)
        if kinds > 1 and (blocks % tasks == 0 or tasks * share > most_uneven * of_a_kind):
            return self._distribute_in_turn(jobs, tasks, begin, job)

        def task(number: Any) -> Any:
            def one(index: Any) -> Any:
                kind, at = digits_of(index, (kinds, share))
                place = number * share + at
                return when(place < of_a_kind, job(number, kind * of_a_kind + place), tasks * share != of_a_kind)

            return sequence(*begin(number), self.loop("job", kinds * share, one))

        return self.loop("task", tasks, task, PARALLEL if tasks > 1 else SERIAL)

    def _distribute_in_turn(
        self, jobs: int, tasks: int, begin: Callable[[Any], list[Any]], job: Callable[[Any, Any], Any]
    ) -> Any:
        """As `distribute`, with every `tasks`-th job for a task."""

        def task(number: Any) -> Any:
            def one(index: Any) -> Any:
                which = index * tasks + number
                return when(which < jobs, job(number, which), jobs % tasks > 0)

            return sequence(*begin(number), self.loop("job", -(-jobs // tasks), one))

        return self.loop("task", tasks, task, PARALLEL if tasks > 1 else SERIAL)


def is_arithmetic(node: Any) -> bool:
    """Whether a statement has no calls and no `Select`."""
    return not _contains(node, (Call, tirx.Select))


def is_straight(node: Any) -> bool:
    """Whether a statement has no calls and no branches."""
    return not _contains(node, (Call, tirx.IfThenElse))


def _contains(node: Any, kinds: tuple[type, ...]) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kinds, found.append))
    return bool(found)


def when(condition: Any, statement: Any, is_needed: bool) -> Any:
    return tirx.IfThenElse(condition, statement, None) if is_needed else statement


def when_all(conditions: Sequence[Any], statement: Any) -> Any:
    return tirx.IfThenElse(tirx.all(*conditions), statement, None) if conditions else statement


def prefetch(load: Any) -> Any:
    """Prefetches what a later load will read. The address may be out of bounds."""
    read, keep, data = (tirx.IntImm("int32", value) for value in (0, 3, 1))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(load), read, keep, data))


def sequence(*statements: Any) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def scaled(indices: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    return [index * size for index, size in zip(indices, sizes, strict=True)]


def moved(start: Sequence[Any], by: Sequence[Any]) -> list[Any]:
    return [first + index for first, index in zip(start, by, strict=True)]


def position_of(indices: Sequence[Any], extents: Sequence[int]) -> Any:
    """The position in row-major order."""
    total = None
    for index, extent in zip(indices, extents, strict=True):
        total = index if total is None else total * extent + index
    return total


def digits_of(value: Any, extents: Sequence[int]) -> list[Any]:
    """The inverse of `position_of`."""
    zero = value * 0  # in its type
    digits = [zero] * len(extents)
    places = [place for place, extent in enumerate(extents) if extent > 1]
    for place in reversed(places):
        digits[place] = value if place == places[0] else tirx.floormod(value, extents[place])
        value = tirx.floordiv(value, extents[place])
    return digits
