"""Loops and positions, in the index type of the kernel they are written for."""

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
_MOST_UNEVEN = 1.1  # how much more than a fair share of each kind of jobs a task may get


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
        """`body` for every index, by vectors, the last of them as wide as what is left.

        Where `body` calls or chooses something, lane by lane, it is a plain loop: LLVM knows how. `with_choices`, a
        `Select` is in vectors, too: both of what it chooses from are computed in any case.
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

    def dealt(
        self,
        count: int,
        lanes: int,
        stride: int,
        read: Callable[[Any], Any],
        write: Callable[[int, Any, Any], Any],
    ) -> Any:
        """`write(phase, n, read(n · stride + phase))` for every n below `count` and every phase of the stride.

        By vectors that are read in the order of memory and taken apart in registers; the last one ends with the last n,
        and does some over again.
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

    def shared_out(
        self,
        jobs: int,
        tasks: int,
        begin: Callable[[Any], list[Any]],
        job: Callable[[Any, Any], Any],
        *,
        kinds: int = 1,
        blocks: int = 1,
    ) -> Any:
        """`job(task, number)` for every number, in `tasks` that run side by side; each does `begin(task)` first.

        A task gets numbers that follow each other. Where there are several `kinds` of jobs, so many of the first, then
        as many of the second, and some kinds take longer than others, it gets a fair share of each: the same ones of
        all kinds, for these may write side by side, and what two cores write in turns travels between them. Every
        `blocks`-th job has the same rows: a task keeps to its own blocks where all tasks get as many.
        """
        of_a_kind = jobs // kinds
        share = -(-of_a_kind // tasks)
        if kinds > 1 and (blocks % tasks == 0 or tasks * share > _MOST_UNEVEN * of_a_kind):
            return self._dealt_out(jobs, tasks, begin, job)

        def task(number: Any) -> Any:
            def one(index: Any) -> Any:
                kind, at = digits_of(index, (kinds, share))
                place = number * share + at
                return when(place < of_a_kind, job(number, kind * of_a_kind + place), tasks * share != of_a_kind)

            return sequence(*begin(number), self.loop("job", kinds * share, one))

        return self.loop("task", tasks, task, PARALLEL if tasks > 1 else SERIAL)

    def _dealt_out(
        self, jobs: int, tasks: int, begin: Callable[[Any], list[Any]], job: Callable[[Any, Any], Any]
    ) -> Any:
        """As `shared_out`, every `tasks`-th job to a task."""

        def task(number: Any) -> Any:
            def one(index: Any) -> Any:
                which = index * tasks + number
                return when(which < jobs, job(number, which), jobs % tasks > 0)

            return sequence(*begin(number), self.loop("job", -(-jobs // tasks), one))

        return self.loop("task", tasks, task, PARALLEL if tasks > 1 else SERIAL)


def is_arithmetic(node: Any) -> bool:
    """Whether nothing is called in a statement, and nothing chosen by a condition."""
    return not _contains(node, (Call, tirx.Select))


def is_straight(node: Any) -> bool:
    """Whether nothing is called in a statement, and nothing left out by a condition."""
    return not _contains(node, (Call, tirx.IfThenElse))


def _contains(node: Any, kinds: tuple[type, ...]) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (kinds, found.append))
    return bool(found)


def when(condition: Any, statement: Any, is_needed: bool) -> Any:
    return tirx.IfThenElse(condition, statement, None) if is_needed else statement


def when_all(conditions: Sequence[Any], statement: Any) -> Any:
    return tirx.IfThenElse(tirx.all(*conditions), statement, None) if conditions else statement


def fetched(load: Any) -> Any:
    """Asks for what a later load will read. Nothing is read yet: the place need not exist."""
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
