"""The results of a training run, ours or a reference's, and the differences between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

STEPS = 10
VALUE_TOLERANCE = 1e-4
# Losses and values hide errors: with one layer's update 42 % wrong, the third loss was off by 1e-5. So the update is
# compared too, less what rounding the stored value once a step to float32 explains.
UPDATE_TOLERANCE = 1e-3
_ROUNDING = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One training batch: what the model reads, and what it should have said."""

    data: Array  # the model's first input
    labels: Array
    more: Mapping[str, Array] = field(default_factory=dict)  # its other inputs, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Losses step by step, and every parameter (running statistics included) before and after."""

    losses: tuple[float, ...]
    initial: Mapping[str, Array]
    final: Mapping[str, Array]

    def update(self, name: str) -> Array:
        """How far training moved the parameter."""
        moved: Array = self.final[name].astype(np.float64) - self.initial[name].astype(np.float64)
        return moved

    def rounding(self, name: str) -> float:
        """The most by which float32 can have moved the parameter: half a unit in the last place, each step."""
        return len(self.losses) * _ROUNDING * float(np.abs(self.final[name]).max(initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Largest differences between two runs, each relative to the largest magnitude in the reference's tensor."""

    loss: float
    values: Mapping[str, float]
    updates: Mapping[str, float]

    @property
    def value(self) -> float:
        return max(self.values.values())

    @property
    def update(self) -> float:
        return max(self.updates.values())


def relative_difference(found: Array, expected: Array, *, rounding: float = 0.0) -> float:
    """max |found − expected| / max |expected|, after `rounding` is forgiven; zeros ask for exact zeros otherwise."""
    apart = float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))
    scale = float(np.abs(expected).max(initial=0.0))
    if apart <= rounding:
        return 0.0
    return (apart - rounding) / scale if scale > 0.0 else float("inf")


def differences(found: Trained, expected: Trained) -> Differences:
    """Both runs must have trained the same parameters for as many steps."""
    assert found.final.keys() == expected.final.keys()
    assert len(found.losses) == len(expected.losses)
    names = sorted(expected.final)
    return Differences(
        loss=relative_difference(np.array(found.losses), np.array(expected.losses)),
        values={n: relative_difference(found.final[n], expected.final[n]) for n in names},
        updates={
            n: relative_difference(found.update(n), expected.update(n), rounding=expected.rounding(n)) for n in names
        },
    )


def agrees(found: Trained, expected: Trained) -> bool:
    """Whether every value, update and loss is within its tolerance."""
    apart = differences(found, expected)
    return max(apart.value, apart.loss) <= VALUE_TOLERANCE and apart.update <= UPDATE_TOLERANCE


def assert_agrees(
    found: Trained, expected: Trained, *, value: float = VALUE_TOLERANCE, update: float = UPDATE_TOLERANCE
) -> None:
    """Fails with every parameter that is out of bounds, worst first."""
    apart = differences(found, expected)
    problems = [(d / value, f"value of `{n}` is off by {d:.1e}") for n, d in apart.values.items() if not d <= value]
    problems += [
        (d / update, f"update of `{n}` is off by {d:.1e}") for n, d in apart.updates.items() if not d <= update
    ]
    if not apart.loss <= value:
        problems.append((apart.loss / value, f"a loss is off by {apart.loss:.1e}"))
    assert not problems, "\n".join(text for _, text in sorted(problems, reverse=True))
    assert any(expected.update(n).any() for n in expected.final), "the reference trained nothing: nothing was compared"


def same_bits(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Whether two sets of tensors are equal to the last bit."""
    return one.keys() == other.keys() and all(one[n].tobytes() == other[n].tobytes() for n in one)


def make_batches(
    shape: Sequence[int], outputs: int, *, loss: str, size: int, seed: int, count: int = STEPS, patch: int = 1
) -> list[Batch]:
    """Batches of normal data. With `patch`, images hold squares of one value, so that neighbours tie for a maximum."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        coarse = (size, *shape[:-2], *(extent // patch for extent in shape[-2:]))
        data = rng.standard_normal(coarse).astype(np.float32)
        for axis in (-2, -1) if patch > 1 else ():
            data = np.repeat(data, patch, axis=axis)
        batches.append(Batch(data=data, labels=_labels(rng, loss, size, outputs)))
    return batches


def _labels(rng: np.random.Generator, loss: str, size: int, outputs: int) -> Array:
    if loss == "cross-entropy":
        return rng.integers(0, outputs, size)
    if loss == "bce":
        return rng.integers(0, 2, (size, outputs)).astype(np.float32)
    return rng.standard_normal((size, outputs)).astype(np.float32)


def joined(batches: Sequence[Batch], count: int) -> list[Batch]:
    """Every `count` batches as one of that many times the size."""
    groups = [batches[i : i + count] for i in range(0, len(batches), count)]
    return [
        Batch(data=np.concatenate([b.data for b in group]), labels=np.concatenate([b.labels for b in group]))
        for group in groups
    ]
