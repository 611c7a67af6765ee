"""Gradients against central differences of the loss, asked of a compiled program.

The program is compiled with plain SGD, so that one step at a known learning rate gives the gradient away:
`gradient = (parameter before − parameter after) / rate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgetrain.run.engine import LEARNING_RATE, LOSS, STEP, Array, Engine, scalar

_PROBE_RATE = 1024.0  # a power of two: exact, and large, so that rounding the parameter hides little of the gradient
_SAMPLE = 64  # elements of each tensor that are moved
_RANDOM = 3  # directions besides the gradient's own: a fault of a fifth of the gradient rarely hides from all three
_TOGETHER = 4  # tensors that are moved at once: as many steps as for one, where nothing is wrong
_STEP_SIZES = (3e-2, 1e-2, 1e-1, 3e-3, 1e-3)  # against the sample's norm; the likeliest first
_SIZES_TOGETHER = (1e-2, 3e-2)
_LEAST_NORM = 0.1  # a sample of zeros (biases) is moved as if it had this norm
_TOLERANCE = 0.02
_CLEAR = 0.5  # so much of what is allowed ends the search for a better step size
# Two float32 losses differ by a few roundings even where the true ones do not.
_LOSS_ROUNDINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientError:
    """How far a tensor's gradient is from the finite difference. `excess` above 1 is more than is allowed."""

    tensor: str
    excess: float
    relative: float


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


def gradient_errors(engine: Engine, names: Sequence[str], *, seed: int) -> Iterator[GradientError]:
    """Each tensor's worst direction, at the step size where the two agree best, on the data that the engine holds.

    The parameters are left as they were. Tensors are moved a few at a time, each by what changes the loss as much as
    the others do, and held to what is allowed to one of them alone. Only where that fails is each asked by itself,
    and may be blamed.
    """
    saved = bytes(engine.saved)
    gradients = _gradients(engine, names, saved)
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    samples = sorted((_sample(rng, engine, name, gradients[name]) for name in names), key=lambda s: s.reach)
    engine.tensor(LEARNING_RATE)[...] = 0.0
    for first in range(0, len(samples), _TOGETHER):
        group = samples[first : first + _TOGETHER]
        together = _worst(engine, saved, group, _SIZES_TOGETHER) if _is_comparable(group) else None
        for sample in group:
            found = together
            if found is None or not found.excess <= 1 or found.is_mostly_rounding:
                found = _worst(engine, saved, [sample], _STEP_SIZES)
            yield GradientError(tensor=sample.tensor, excess=found.excess, relative=found.relative)


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


@dataclass(frozen=True, kw_only=True)
class _Move:
    """Samples and, for each, what is added at a step size of 1; `reach` is what 2 % of are allowed."""

    samples: Sequence[_Sample]
    vectors: Sequence[Array]
    reach: float

    @property
    def expected(self) -> float:
        return sum(float(s.gradient @ v) for s, v in zip(self.samples, self.vectors, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    excess: float = math.inf
    relative: float = math.inf
    is_mostly_rounding: bool = False  # then what is allowed would hide a fault


def _worst(engine: Engine, saved: bytes, samples: Sequence[_Sample], sizes: Sequence[float]) -> _Agreement:
    """The direction in which slope and gradient agree least. What shows a fault among several ends the search."""
    least = min(sample.reach for sample in samples)
    worst = _Agreement(excess=0.0, relative=0.0)
    for directions in zip(*(sample.directions for sample in samples), strict=True):
        shares = [least / sample.reach if len(samples) > 1 else 1.0 for sample in samples]
        vectors = [sh * sa.size * d for sh, sa, d in zip(shares, samples, directions, strict=True)]
        found = _agreement(engine, saved, _Move(samples=samples, vectors=vectors, reach=least), sizes)
        if not found.excess <= worst.excess:
            worst = found
        if len(samples) > 1 and (not found.excess <= 1 or found.is_mostly_rounding):
            return found
    return worst


def _agreement(engine: Engine, saved: bytes, move: _Move, sizes: Sequence[float]) -> _Agreement:
    """The best over the step sizes, and over what each two in a row say of a step of no size at all."""
    best = _Agreement()
    before: tuple[float, float] | None = None  # size and slope
    for size in sizes:
        slope, rounding = _slope(engine, saved, move, size)
        slopes = [slope]
        if before is not None:
            # A central difference errs by the square of its step: two of them say by how much.
            slopes.append((before[0] ** 2 * slope - size**2 * before[1]) / (before[0] ** 2 - size**2))
        for candidate in slopes:
            found = _judged(abs(candidate - move.expected), move.reach, rounding)
            best = found if found.excess < best.excess else best
        if best.excess < _CLEAR:
            break
        before = (size, slope)
    return best


def _judged(difference: float, reach: float, rounding: float) -> _Agreement:
    return _Agreement(
        excess=difference / (_TOLERANCE * reach + rounding),
        relative=difference / reach if reach else (0.0 if difference <= rounding else math.inf),
        is_mostly_rounding=rounding > _TOLERANCE * reach,
    )


def _slope(engine: Engine, saved: bytes, move: _Move, size: float) -> tuple[float, float]:
    """Half the change of the loss between both ends of a move, and what rounding may make of it, by step size."""
    losses = []
    for sign in (1.0, -1.0):
        for sample, vector in zip(move.samples, move.vectors, strict=True):
            engine.tensor(sample.tensor).reshape(-1)[sample.rows] = sample.base + sign * size * vector
        losses.append(loss_of_step(engine))
        engine.saved[:] = saved
    rounding = _LOSS_ROUNDINGS * float(np.finfo(np.float32).eps) * max(1.0, abs(losses[0]))
    return (losses[0] - losses[1]) / (2 * size), rounding / size


def _gradients(engine: Engine, names: Sequence[str], saved: bytes) -> dict[str, Array]:
    before = {name: engine.tensor(name).astype(np.float64) for name in names}
    engine.tensor(LEARNING_RATE)[...] = _PROBE_RATE
    engine.call(STEP)
    gradients = {name: (before[name] - engine.tensor(name)) / _PROBE_RATE for name in names}
    engine.saved[:] = saved
    return gradients


def loss_of_step(engine: Engine) -> float:
    engine.call(STEP)
    return scalar(engine.tensor(LOSS))
