"""When nothing fits: a bigger budget, a smaller batch, a sparser update; each is planned before it is advised.

Each needs a training graph of its own, and building it takes longest. A plan then only has to fit; it need not be good.
On a busy machine the time may be up after the first graph: batches that are expected to fit are tried all the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgetrain.errors import EdgetrainError, WayOut
from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.make_plan import CostsByFunction, is_plannable, smallest_budget
from edgetrain.planner.plan import NO_PROGRAM, Budget, ProgramMemory
from edgetrain.progress import ReportProgress, silent
from edgetrain.targets.device import Storage
from edgetrain.units import show_bytes, show_bytes_up

log = logging.getLogger(__name__)

BesideArena = Callable[[TrainGraph], ProgramMemory]

TIME_LIMIT_S = 30.0  # nothing new begins after that, but the batches that are expected to fit
_TRIES_NEAR_THE_GUESS = 2

# Sparser updates of each mode, the one that learns most first.
_SPARSER: Mapping[str, tuple[str, ...]] = {
    "full": ("lora", "bias", "head"),
    "lora": ("bias", "head"),
    "sparse": ("bias", "head"),
    "names": ("bias", "head"),
    "last-k": ("head",),
    "norms": ("head",),
    "bias": ("head",),
    "head": (),
}
_TRAINS: Mapping[str, str] = {
    "lora": "low-rank adapters need",
    "bias": "biases alone need",
    "head": "the last layer alone needs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What can be changed of a training step to make it smaller."""

    batch: int
    accumulate: int
    update_mode: str


# The graph of a variant with its costs. Raises an `EdgetrainError` for a model that cannot be trained that way.
Build = Callable[[Variant], tuple[TrainGraph, CostsByFunction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    asked: Variant
    budget: Budget
    build: Build
    solver: str
    storage: Storage | None
    beside: BesideArena
    ends_s: float
    clock: Callable[[], float]
    progress: ReportProgress

    @property
    def is_over(self) -> bool:
        return self.clock() >= self.ends_s

    def fits(self, variant: Variant) -> bool:
        built = self._built(variant)
        if built is None:
            return False
        limit_bytes = self.budget.memory_bytes or 0
        graph, costs = built
        beside = self.beside(graph)
        return is_plannable(graph, limit_bytes, costs, solver=self.solver, storage=self.storage, beside=beside)

    def smallest_bytes(self, variant: Variant) -> int | None:
        """None for a model that cannot be trained that way."""
        built = self._built(variant)
        if built is None:
            return None
        return smallest_budget(*built, solver=self.solver, storage=self.storage, beside=self.beside(built[0]))

    def _built(self, variant: Variant) -> tuple[TrainGraph, CostsByFunction] | None:
        """None for a model that cannot be trained that way. Tells what is tried."""
        words = [f"train.batch={variant.batch}"] if variant.batch != self.asked.batch else []
        words += [f"train.accumulate={variant.accumulate}"] if variant.accumulate != self.asked.accumulate else []
        words += [f"update.mode={variant.update_mode}"] if variant.update_mode != self.asked.update_mode else []
        self.progress(f"trying {' '.join(words)}", 0, 0)
        try:
            return self.build(variant)
        except EdgetrainError as error:
            log.info("%s: %s", variant, error.what)
            return None


def nothing_beside(_graph: TrainGraph) -> ProgramMemory:
    """Of a device that runs its code from flash."""
    return NO_PROGRAM


def find_ways_out(
    asked: Variant,
    budget: Budget,
    smallest_bytes: int,
    build: Build,
    *,
    device: str,
    device_bytes: int,
    solver: str = "greedy",
    storage: Storage | None = None,
    beside: BesideArena = nothing_beside,
    time_limit_s: float = TIME_LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
    progress: ReportProgress = silent,
) -> tuple[WayOut, ...]:
    """A bigger budget, a smaller batch, a sparser update, in this order, each with what it needs or that it fails.

    `smallest_bytes` is the least budget of the step as asked for. After `time_limit_s` nothing new is tried.
    """
    starts_s = clock()
    search = _Search(
        asked=asked,
        budget=budget,
        build=build,
        solver=solver,
        storage=storage,
        beside=beside,
        ends_s=starts_s + time_limit_s,
        clock=clock,
        progress=progress,
    )
    return (
        _bigger_budget(smallest_bytes, device, device_bytes),
        _smaller_batch(replace(search, ends_s=starts_s + time_limit_s / 2), smallest_bytes),
        _sparser_update(search),
    )


def _bigger_budget(smallest_bytes: int, device: str, device_bytes: int) -> WayOut:
    least = show_bytes_up(smallest_bytes)
    if smallest_bytes > device_bytes:
        text = f"a bigger device: {least} are needed, {device} has {show_bytes(device_bytes)}"
        return WayOut(kind="budget", text=text, flags="", memory_bytes=smallest_bytes)
    text = f"a bigger budget: {least} ({smallest_bytes} bytes) is the least that works"
    return WayOut(kind="budget", text=text, flags=f"--budget {least}", memory_bytes=smallest_bytes)


def _smaller_batch(search: _Search, asked_bytes: int) -> WayOut:
    """The largest divisor of the batch that fits, gradients summed up to the same number of samples; a power of two
    where that is at least twice as large; the largest batch without sums where none fits with them.

    Summing gradients takes memory of its own, so one sample at a time may fit only without it. `asked_bytes` is what
    the batch as asked for needs at least.
    """
    asked = search.asked
    if search.is_over:
        return _no_batch("a smaller batch: none was found to fit in the time there was")
    # The least of all first: where that does not fit, nothing else has to be built.
    one_bytes = search.smallest_bytes(replace(asked, batch=1))
    if one_bytes is None:
        return _no_batch("a smaller batch does not help: none can be built")
    limit_bytes = search.budget.memory_bytes or 0
    if one_bytes > limit_bytes:
        needs = f"one sample at a time needs {show_bytes_up(one_bytes)}"
        return replace(_no_batch(f"a smaller batch does not help: {needs}"), memory_bytes=one_bytes)
    # Memory grows about evenly with the batch: near this one the search begins, which may have time for few only.
    expected = 1 + (asked.batch - 1) * (limit_bytes - one_bytes) // max(1, asked_bytes - one_bytes)
    found = _largest_sum_that_fits(search, expected)
    has_time = not search.is_over
    if found is not None:
        count = found.accumulate // asked.accumulate
        text = f"a smaller batch: {found.batch} at a time fit, the gradients of {count} batches summed up"
        flags = f"train.batch={found.batch} train.accumulate={found.accumulate}"
        return WayOut(kind="batch", text=text, flags=flags, memory_bytes=None)
    alone = [replace(asked, batch=size) for size in range(2, asked.batch)]
    found = _largest_that_fits(search, alone, expected)
    batch = found.batch if found is not None else 1
    text = f"a smaller batch: {batch} of {asked.batch} fit, with an update after each"
    text += "" if has_time else "; there was no time to try all"
    return WayOut(kind="batch", text=text, flags=f"train.batch={batch}", memory_bytes=None)


def _largest_sum_that_fits(search: _Search, expected: int) -> Variant | None:
    """Among batches whose gradients are summed up to as many samples as asked for, or about as many."""
    asked = search.asked
    divisors = [size for size in range(1, asked.batch) if asked.batch % size == 0]
    exact = [replace(asked, batch=size, accumulate=asked.accumulate * asked.batch // size) for size in divisors]
    found = _largest_that_fits(search, exact, expected)
    least = 2 * found.batch if found is not None else 1
    powers = [1 << bit for bit in range(asked.batch.bit_length()) if least <= 1 << bit < asked.batch]
    about = [
        replace(asked, batch=size, accumulate=asked.accumulate * max(2, round(asked.batch / size)))
        for size in powers
        if size not in divisors
    ]
    return _largest_that_fits(search, about, expected) or found


def _no_batch(text: str) -> WayOut:
    return WayOut(kind="batch", text=text, flags="", memory_bytes=None)


def _largest_that_fits(search: _Search, variants: Sequence[Variant], expected: int) -> Variant | None:
    """The last that fits of variants that need more and more, as far as the time goes; two in any case.

    Tries the one whose batch is expected to fit, its neighbour, and then halves what is left.
    """
    low, high, best = 0, len(variants) - 1, None
    guess, tries = max(0, sum(variant.batch <= expected for variant in variants) - 1), 0
    while low <= high and (tries < _TRIES_NEAR_THE_GUESS or not search.is_over):
        middle = max(low, min(guess, high)) if tries < _TRIES_NEAR_THE_GUESS else (low + high) // 2
        tries += 1
        if search.fits(variants[middle]):
            best, low = variants[middle], middle + 1
        else:
            high = middle - 1
    return best


def _sparser_update(search: _Search) -> WayOut:
    """The first of the sparser modes that fits; where none does, what the least of them needs."""
    limit_bytes = search.budget.memory_bytes or 0
    needs: dict[str, int] = {}
    sparser = _SPARSER.get(search.asked.update_mode, ("head",))
    is_cut_short = False
    for mode in sparser:
        if search.is_over:
            is_cut_short = True
            break
        least_bytes = search.smallest_bytes(replace(search.asked, update_mode=mode))
        if least_bytes is None:
            continue
        needs[mode] = least_bytes
        if least_bytes <= limit_bytes:
            text = f"a sparser update: {_TRAINS[mode]} {show_bytes_up(least_bytes)} or more"
            return WayOut(kind="update", text=text, flags=f"update.mode={mode}", memory_bytes=least_bytes)
    if is_cut_short or not needs:  # modes that were not tried may fit
        why = "none was found in the time there was" if sparser else f"`{search.asked.update_mode}` is the sparsest"
        return WayOut(kind="update", text=f"a sparser update: {why}", flags="", memory_bytes=None)
    mode = min(needs, key=needs.__getitem__)
    text = f"a sparser update does not suffice: {_TRAINS[mode]} {show_bytes_up(needs[mode])}"
    return WayOut(kind="update", text=text, flags="", memory_bytes=needs[mode])
