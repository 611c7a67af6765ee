"""Gradients against central differences of the loss, asked of a compiled program.

The program is compiled with plain SGD, so that one step at a known learning rate gives the gradient away:
`gradient = (parameter before − parameter after) / rate`.

A difference quotient is no oracle: across the kink of a ReLU it is no derivative, and in float32 it drowns in
rounding. So each is asked at several step sizes, and only quotients that agree with each other can prove a gradient
wrong.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from edgetrain.graph.ir import LEARNING_RATE, LOSS, STEP
from edgetrain.run.engines.engine import Array, Engine, scalar

_PROBE_RATE = 2.0**20  # a power of two: exact, and large, so that rounding the parameter hides little of the gradient
_SAMPLE = 64  # elements of each tensor that are moved
_RANDOM = 3  # directions besides the gradient's own: a fault of a fifth of the gradient rarely hides from all three
_TOGETHER = 4  # tensors that are moved at once: as many steps as for one, where nothing is wrong
_LEAST_NORM = 0.1  # a sample of zeros (biases) is moved as if it had this norm
_TOLERANCE = 0.02
# Two float32 losses differ by a few roundings even where the true ones do not, and by more where a layer makes much of
# little. Before a tensor is blamed, the loss is looked at this often nearby; twice the most it was off is its rounding.
_LOSS_ROUNDINGS = 4
_LOOKS_NEARBY = 6
_NEARBY = 1e-6
# Step sizes are shares of the sample's norm. The shorter the step, the fewer kinks lie in its way: the first is so
# short that rounding takes this share of what is allowed, the others are so many times as long.
_ROUNDING_SHARE = 0.25
_TIMES = (1.0, 1 / 3, 3.0, 10.0)
_TIMES_TOGETHER = (1.0, 1 / 3)
_SIZE_LIMITS = (1e-6, 1e-1)
_SIZES_OF_NO_GRADIENT = (3e-2, 1e-2, 1e-1, 3e-3, 1e-3)


class Verdict(IntEnum):
    """What the differences say of a gradient, the worst last."""

    RIGHT = 0
    UNSEEN = 1  # what it does to the loss is nothing, or less than float32 shows: right as far as can be seen
    UNCERTAIN = 2  # the differences contradict it, and each other at least as much
    WRONG = 3  # the differences agree with each other and contradict it


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientError:
    """How far a tensor's gradient is from the finite difference.

    `excess` above 1 is more than is allowed; `spread` is how far the differences are from each other. Both it and
    `relative` are shares of the gradient; a verdict of `RIGHT` needs no spread and has 0.
    """

    tensor: str
    verdict: Verdict
    excess: float
    relative: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """Some elements of one tensor: where they are, their gradient, and the unit vectors they are moved along."""

    tensor: str
    rows: Array
    base: Array  # the elements' values
    gradient: Array
    directions: tuple[Array, ...]

    @property
    def size(self) -> float:
        """What step sizes are a share of."""
        return max(_LEAST_NORM, float(np.linalg.norm(self.base)))

    @property
    def reach(self) -> float:
        """How much the loss changes, to first order, when the elements move by their size along the gradient."""
        return self.size * float(np.linalg.norm(self.gradient))


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the loss is asked: the engine, its parameters as they were, its loss there, and what that may be off by."""

    engine: Engine
    saved: bytes
    loss: float
    rounding: float


def _at_least_one(loss: float) -> float:
    return max(1.0, abs(loss))


def gradient_errors(
    engine: Engine,
    names: Sequence[str],
    *,
    seed: int,
    size_of: Callable[[float], float] = _at_least_one,
) -> Iterator[GradientError]:
    """Each tensor's worst direction, at the step size where the two agree best, on the data that the engine holds.

    The parameters are left as they were. Tensors are moved a few at a time, each by what changes the loss as much as
    the others do, and held to what is allowed to one of them alone. Only where that fails is each asked by itself,
    and may be blamed. `size_of` a loss is that of the numbers it is made of, whose rounding it has.
    """
    saved = bytes(engine.saved)
    gradients = gradients_of(engine, names)
    loss = scalar(engine.tensor(LOSS))
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    samples = sorted((_sample(rng, engine, name, gradients[name]) for name in names), key=lambda s: s.reach)
    engine.tensor(LEARNING_RATE)[...] = 0.0
    numbers = np.finfo(np.float32)
    rounding = max(float(numbers.tiny), _LOSS_ROUNDINGS * float(numbers.eps) * size_of(loss))
    place = _Place(engine=engine, saved=saved, loss=loss, rounding=rounding)
    for first in range(0, len(samples), _TOGETHER):
        group = samples[first : first + _TOGETHER]
        together = _worst(place, group) if _is_comparable(group) else None
        for sample in group:
            found = together
            if found is None or found.verdict is not Verdict.RIGHT:
                found = _worst_alone(place, sample, rng)
            yield GradientError(
                tensor=sample.tensor,
                verdict=found.verdict,
                excess=found.excess,
                relative=found.relative,
                spread=found.spread,
            )


def _is_comparable(group: Sequence[_Sample]) -> bool:
    return len(group) > 1 and all(math.isfinite(sample.reach) and sample.reach > 0 for sample in group)


def _sample(rng: np.random.Generator, engine: Engine, name: str, gradient: Array) -> _Sample:
    rows = rng.choice(gradient.size, min(_SAMPLE, gradient.size), replace=False)
    chosen = gradient.reshape(-1)[rows]
    # Along itself a gradient shows its length; what it lacks altogether shows only along others.
    directions = [vector / np.linalg.norm(vector) for vector in rng.standard_normal((_RANDOM, rows.size))]
    if np.linalg.norm(chosen) > 0:
        directions.append(chosen / np.linalg.norm(chosen))
    return _Sample(
        tensor=name,
        rows=rows,
        base=engine.tensor(name).reshape(-1)[rows].astype(np.float64),
        gradient=chosen,
        directions=tuple(directions),
    )


def _worst_alone(place: _Place, sample: _Sample, rng: np.random.Generator) -> _Agreement:
    found = _worst(place, [sample])
    if found.verdict is Verdict.RIGHT or not math.isfinite(sample.reach):
        return found
    rounding = _rounding_seen(place, sample, rng)
    return _worst(dataclasses.replace(place, rounding=rounding), [sample]) if rounding > place.rounding else found


def _rounding_seen(place: _Place, sample: _Sample, rng: np.random.Generator) -> float:
    """What the loss is off by nearby, where it should change by what the gradient says, which is next to nothing."""
    off_by = 0.0
    for _ in range(_LOOKS_NEARBY):
        vector = rng.standard_normal(sample.rows.size)
        loss, expected = _moved(place, [sample], [sample.size * vector / np.linalg.norm(vector)], _NEARBY)
        off_by = max(off_by, abs(loss - place.loss - expected))
    return 2 * off_by if math.isfinite(off_by) else place.rounding


@dataclass(frozen=True, kw_only=True)
class _Move:
    """Samples and, for each, what is added at a step size of 1; `reach` is what 2 % of are allowed."""

    samples: Sequence[_Sample]
    vectors: Sequence[Array]
    reach: float

    @property
    def allowed(self) -> float:
        return _TOLERANCE * self.reach

    def sizes(self, rounding: float) -> tuple[float, ...]:
        """Step sizes to try, the likeliest first, where losses are off by `rounding`."""
        if not self.reach > 0:
            return _SIZES_OF_NO_GRADIENT
        shortest, longest = _SIZE_LIMITS
        first = min(longest, max(shortest, rounding / (_ROUNDING_SHARE * self.allowed)))
        times = _TIMES if len(self.samples) == 1 else _TIMES_TOGETHER
        sizes = dict.fromkeys(min(longest, max(shortest, first * factor)) for factor in times)
        return tuple(sizes) if len(sizes) > 1 else (first, first / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quotient:
    """What a step size shows beyond the gradient: 0 where both say the same. `rounding` is what losses make of it."""

    size: float
    central: float
    ahead: float  # from the middle to either end
    behind: float
    rounding: float

    @property
    def gap(self) -> float:
        """What kinks and curvature make between the sides."""
        return abs(self.ahead - self.behind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    verdict: Verdict = Verdict.RIGHT
    excess: float = 0.0
    relative: float = 0.0
    spread: float = 0.0


_NO_NUMBER = _Agreement(verdict=Verdict.WRONG, excess=math.inf, relative=math.inf)


def _worst(place: _Place, samples: Sequence[_Sample]) -> _Agreement:
    """The direction in which slope and gradient agree least. What shows a fault among several ends the search."""
    least = min(sample.reach for sample in samples)
    if not math.isfinite(least) or not math.isfinite(place.loss):
        return _NO_NUMBER
    worst = _Agreement()
    for directions in zip(*(sample.directions for sample in samples), strict=True):
        shares = [least / sample.reach if len(samples) > 1 else 1.0 for sample in samples]
        vectors = [sh * sa.size * d for sh, sa, d in zip(shares, samples, directions, strict=True)]
        found = _agreement(place, _Move(samples=samples, vectors=vectors, reach=least))
        worst = max(worst, found, key=lambda a: (a.verdict, a.excess))
        if worst.verdict is Verdict.WRONG or (len(samples) > 1 and worst.verdict is not Verdict.RIGHT):
            break
    return worst


def _agreement(place: _Place, move: _Move) -> _Agreement:
    """Right as soon as a quotient says so whose two sides agree, or two quotients do; else the best that was found."""
    best = _Agreement(verdict=Verdict.UNCERTAIN, excess=math.inf, relative=math.inf)
    quotients: list[_Quotient] = []
    passed = 0
    for size in move.sizes(place.rounding):
        quotient = _quotient(place, move, size)
        if quotient is None:
            continue
        found = _judged(quotient, move)
        best = min(best, found, key=lambda a: a.excess)
        passed += found.excess <= 1
        # Kinks that make up for a fault at one step size: it happens, and either side shows it, or another size.
        if found.excess <= 1 and (passed > 1 or quotient.gap <= 2 * (move.allowed + quotient.rounding)):
            return best
        quotients.append(quotient)
    return _contradicted(best, quotients, move)


def _judged(quotient: _Quotient, move: _Move) -> _Agreement:
    error, rounding = abs(quotient.central), quotient.rounding
    is_seen = move.reach > 0 and rounding <= move.allowed
    return _Agreement(
        verdict=Verdict.RIGHT if is_seen else Verdict.UNSEEN,
        excess=error / (move.allowed + rounding),
        relative=error / move.reach if move.reach else (0.0 if error <= rounding else math.inf),
    )


def _contradicted(best: _Agreement, quotients: Sequence[_Quotient], move: _Move) -> _Agreement:
    """Wrong or uncertain: do the quotients agree with each other better than any of them with the gradient?

    The shortest steps count, as far as rounding leaves something of them: two central quotients, and at the shorter
    step the quotients of either side, which differ where a kink lies between.
    """
    clear = [q for q in quotients if q.rounding <= max(move.allowed, abs(q.central) / 4)]
    shortest = sorted(clear, key=lambda q: q.size)[:2]
    if not shortest:
        return _Agreement(
            verdict=Verdict.UNCERTAIN, excess=best.excess, relative=best.relative, spread=_share(math.inf, move)
        )
    errors = [*(q.central for q in shortest), shortest[0].ahead, shortest[0].behind]
    spread = max(errors) - min(errors)
    is_wrong = len(shortest) > 1 and spread <= min(map(abs, errors))
    return _Agreement(
        verdict=Verdict.WRONG if is_wrong else Verdict.UNCERTAIN,
        excess=best.excess,
        relative=best.relative,
        spread=_share(spread, move),
    )


def _share(value: float, move: _Move) -> float:
    return value / move.reach if move.reach else math.inf


def _quotient(place: _Place, move: _Move, size: float) -> _Quotient | None:
    """The loss at both ends of a move, against the gradient; None where it is no number there."""
    last, gained = _moved(place, move.samples, move.vectors, size)
    first, lost = _moved(place, move.samples, move.vectors, -size)
    ahead = (last - place.loss - gained) / size
    behind = (place.loss - first + lost) / size
    if not math.isfinite(ahead + behind):
        return None
    return _Quotient(
        size=size, central=(ahead + behind) / 2, ahead=ahead, behind=behind, rounding=place.rounding / size
    )


def _moved(place: _Place, samples: Sequence[_Sample], vectors: Sequence[Array], size: float) -> tuple[float, float]:
    """The loss after so much of a move, and how it should have changed for the way that the elements really went."""
    expected = 0.0
    for sample, vector in zip(samples, vectors, strict=True):
        tensor = place.engine.tensor(sample.tensor).reshape(-1)
        elements = (sample.base + size * vector).astype(tensor.dtype)
        tensor[sample.rows] = elements
        expected += float(sample.gradient @ (elements - sample.base))
    loss = loss_of_step(place.engine)
    place.engine.saved[:] = place.saved
    return loss, expected


def gradients_of(engine: Engine, names: Sequence[str]) -> dict[str, Array]:
    """What one step of plain SGD gives away, on the batch that the engine holds; parameters stay as they were."""
    saved = bytes(engine.saved)
    before = {name: engine.tensor(name).astype(np.float64) for name in names}
    engine.tensor(LEARNING_RATE)[...] = _PROBE_RATE
    engine.call(STEP)
    gradients = {name: (before[name] - engine.tensor(name)) / _PROBE_RATE for name in names}
    engine.saved[:] = saved
    return gradients


def loss_of_step(engine: Engine) -> float:
    engine.call(STEP)
    return scalar(engine.tensor(LOSS))
