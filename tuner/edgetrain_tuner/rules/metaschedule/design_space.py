"""MetaSchedule's design spaces of a kernel: loops that TVM's own rules would write, with decisions left open.

TVM derives them from the kernel and the number of cores alone, the same in every process. So the number of a space and
the values of its decisions, in order, are the whole schedule: no instruction has to be stored or trusted.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import tvm
from tvm import s_tir
from tvm.s_tir import meta_schedule

from edgetrain_tuner.schedule import ScheduleRefusedError, Values

log = logging.getLogger(__name__)

MOST_DECISIONS = 31  # with the number of the space, what an entry of the cache has room for
# TVM numbers the loops that a block may be computed in from 0; -1 leaves it where it is, -2 inlines it.
_FIRST_LOCATION = -2
_MOST_LOCATIONS = 20
_OWN_RULE = "schedule_rule"
_REFUSALS = (s_tir.ScheduleError, tvm.error.InternalError, RuntimeError, ValueError)


class Decision(StrEnum):
    """Kinds of decisions, by the names of TVM's instructions."""

    TILE = "SamplePerfectTile"
    CATEGORY = "SampleCategorical"
    LOCATION = "SampleComputeLocation"


class Context(meta_schedule.TuneContext):  # type: ignore[misc]
    """A tune context without its import of TVM's tensor intrinsics: that takes 38 s, and no rule here uses them."""

    def __init__(self, module: Any, *, cores: int, search: Any = None, seed: int = 1) -> None:
        self.__init_handle_by_constructor__(
            meta_schedule._ffi_api.TuneContext,
            module,
            tvm.target.Target({"kind": "llvm", "num-cores": cores}),
            # Those for float32 on any processor, not those of the target: they would ask for its intrinsics.
            meta_schedule.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm"),
            search,
            "kernel",
            1,  # threads: with more of them, the order of what is drawn is not the same twice
            seed,
            meta_schedule.logging.get_logging_func(log),
        )
        meta_schedule._ffi_api.TuneContextInitialize(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A decision that a space asks for while it is written. `most` is the extent, or the number of categories."""

    number: int
    kind: Decision
    most: int = 0
    parts: int = 1
    most_innermost: int = 0
    locations: Callable[[], tuple[Values, ...]] = tuple

    def choices(self) -> Iterator[Values]:
        """All answers, growing."""
        match self.kind:
            case Decision.TILE:
                yield from (tile for tile in tilings(self.most, self.parts) if tile[-1] <= self.most_innermost)
            case Decision.CATEGORY:
                yield from ((number,) for number in range(self.most))
            case _:
                yield from self.locations()

    def is_answered_by(self, values: Values) -> bool:
        """Whether the answer is one. TVM takes any tile, and makes one vector of an axis that it does not divide."""
        if len(values) != self.parts:
            return False
        match self.kind:
            case Decision.TILE:
                is_tiling = min(values) >= 1 and math.prod(values) == self.most
                return is_tiling and values[-1] <= self.most_innermost
            case Decision.CATEGORY:
                return 0 <= values[0] < self.most
        return 0 <= values[0] < _MOST_LOCATIONS  # of these TVM takes the nearest, and says which in `Written`

    def nearest(self, wanted: Values) -> Values:
        """The answer nearest to another kernel's. Raises `ScheduleRefusedError` where that answers another question."""
        if len(wanted) != self.parts or min(wanted) < 0:
            raise ScheduleRefusedError(f"decision {self.number} was made for another structure of loops")
        match self.kind:
            case Decision.TILE:
                return nearest_tiling(self.most, wanted, self.most_innermost)
            case Decision.CATEGORY:
                return (min(wanted[0], self.most - 1),)
        return (min(wanted[0], _MOST_LOCATIONS - 1),)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A space with all its decisions made: the function, and the decisions as TVM took them."""

    function: Any
    decisions: tuple[Values, ...]


class DesignSpaces:
    """All spaces of one kernel. Raises `ScheduleRefusedError` where TVM's rules have nothing to say about it."""

    def __init__(self, function: Any, cores: int) -> None:
        try:
            self.module = _without_own_rules(function)
            context = Context(self.module, cores=cores)
            spaces = context.generate_design_space()
        except _REFUSALS as error:
            raise ScheduleRefusedError(f"TVM finds no design space: {_first_line(error)}") from error
        self._context = context  # keeps what its postprocessors were initialised with
        self._traces = [space.trace.simplified(remove_postproc=True) for space in spaces]
        if not any(_decisions(trace) for trace in self._traces):
            raise ScheduleRefusedError("TVM's design spaces of this kernel leave nothing open")

    def __len__(self) -> int:
        return len(self._traces)

    def number_of(self, trace: Any) -> int | None:
        """Which space a trace comes from, whatever its decisions."""
        wanted = _instructions(trace.simplified(remove_postproc=True))
        found = (number for number, own in enumerate(self._traces) if _instructions(own) == wanted)
        return next(found, None)

    def decisions(self, trace: Any) -> tuple[Values, ...]:
        return _decisions(trace.simplified(remove_postproc=True))

    def write(self, number: int, answer: Callable[[Question], Values]) -> Written:
        """Writes a space out, asking for each decision. Raises `ScheduleRefusedError` where TVM cannot.

        Raises what `answer` raises, too.
        """
        if not 0 <= number < len(self):
            raise ScheduleRefusedError(f"space is {number}, not from 0 to {len(self) - 1}")
        schedule = s_tir.Schedule(self.module, seed=1, debug_mask=0, error_render_level="none")
        asked = 0
        raised: list[ScheduleRefusedError] = []

        def decide(instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
            nonlocal asked
            if not _is_sampling(instruction):
                return decision
            try:
                question = _question(asked, schedule, instruction, inputs, attributes)
                asked += 1
                return _to_tvm(question.kind, answer(question))
            except ScheduleRefusedError as error:
                raised.append(error)  # on its way through TVM it becomes another error
                raise

        try:
            self._traces[number].apply_to_schedule(schedule, remove_postproc=True, decision_provider=decide)
            decisions = _decisions(schedule.trace)
            schedule.enter_postproc()
            accepted = all(processor.apply(schedule) for processor in self._context.space_generator.postprocs)
        except _REFUSALS as error:
            raise (raised or [ScheduleRefusedError(f"TVM cannot write it: {_first_line(error)}")])[0] from error
        if not accepted:
            raise ScheduleRefusedError("TVM's postprocessors refuse it")
        return Written(function=schedule.mod["main"], decisions=decisions)


def _without_own_rules(function: Any) -> Any:
    """The kernel as a module, without annotations that name a rule for a block: no such rule is registered."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        if _OWN_RULE in schedule.get(block).annotations:
            schedule.unannotate(block, _OWN_RULE)
    return schedule.mod


def tilings(extent: int, parts: int) -> Iterator[Values]:
    """All ways to write an extent as a product of so many factors, growing."""
    if parts == 1:
        yield (extent,)
        return
    for outer in divisors(extent):
        yield from ((outer, *rest) for rest in tilings(extent // outer, parts - 1))


def nearest_tiling(extent: int, wanted: Values, most_innermost: int) -> Values:
    """The innermost factor nearest to the wanted one in the logarithm, then the next; the outermost takes the rest."""
    factors: list[int] = []
    left = extent
    for place, factor in enumerate(reversed(wanted[1:])):
        fitting = [d for d in divisors(left) if place or d <= most_innermost]
        nearest = min(fitting, key=lambda d: (abs(math.log(d / max(factor, 1))), -d))
        factors.append(nearest)
        left //= nearest
    return (left, *reversed(factors))


@lru_cache(maxsize=256)
def divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _question(number: int, schedule: Any, instruction: Any, inputs: Any, attributes: Any) -> Question:
    match instruction.kind.name:
        case Decision.TILE:
            extent = int((inputs[0] if hasattr(inputs[0], "extent") else schedule.get(inputs[0])).extent)
            parts, most_innermost = (int(value) for value in attributes)
            return Question(
                number=number, kind=Decision.TILE, most=extent, parts=parts, most_innermost=most_innermost or extent
            )
        case Decision.CATEGORY:
            return Question(number=number, kind=Decision.CATEGORY, most=len(attributes[0]))
        case Decision.LOCATION:
            return Question(number=number, kind=Decision.LOCATION, locations=lambda: _locations(schedule, inputs[0]))
    raise ScheduleRefusedError(f"nobody knows how to decide a {instruction.kind.name}")


def _locations(schedule: Any, block: Any) -> tuple[Values, ...]:
    """The locations that TVM accepts: for any other it takes the nearest loop."""
    found = set()
    for wish in range(_FIRST_LOCATION, _FIRST_LOCATION + _MOST_LOCATIONS):
        trial = schedule.copy()
        trial.sample_compute_location(block, decision=wish)
        found.add(_decisions(trial.trace)[-1])
    return tuple(sorted(found))


def _is_sampling(instruction: Any) -> bool:
    return str(instruction.kind.name).startswith("Sample")


def _decisions(trace: Any) -> tuple[Values, ...]:
    sampled = [instruction for instruction in trace.insts if _is_sampling(instruction)]
    return tuple(_from_tvm(instruction.kind.name, trace.get_decision(instruction)) for instruction in sampled)


def _from_tvm(kind: str, decision: Any) -> Values:
    if kind == Decision.TILE:
        return tuple(int(factor) for factor in decision)
    return (int(decision) - (_FIRST_LOCATION if kind == Decision.LOCATION else 0),)


def _to_tvm(kind: str, values: Values) -> Any:
    if kind == Decision.TILE:
        return list(values)
    return values[0] + (_FIRST_LOCATION if kind == Decision.LOCATION else 0)


def _instructions(trace: Any) -> str:
    instructions, _decisions = trace.as_json()
    return json.dumps(instructions, default=str)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
