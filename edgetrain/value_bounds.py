"""Which values the host may write into an input, as plain data. The graph carries it; host and driver check it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Elements of every sample that must be from `lowest` to `highest`: `count` runs of `length`, `step` apart.

    Places count from 0 in a sample that is flattened. NaN is never inside.
    """

    lowest: float
    highest: float
    start: int
    length: int
    step: int
    count: int

    @property
    def end(self) -> int:
        """The place behind the last one."""
        return self.start + self.step * (self.count - 1) + self.length

    def covers(self, place: int) -> bool:
        return self.start <= place < self.end and (place - self.start) % self.step < self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBounds:
    """Where not every element has the same bounds, or any at all. No two regions share an element."""

    regions: tuple[Region, ...]


InputBounds = tuple[int, int] | PartBounds  # the lowest and the highest value of every element, or of some


def to_plain(bounds: InputBounds) -> list[Any]:
    return [asdict(region) for region in bounds.regions] if isinstance(bounds, PartBounds) else list(bounds)


def from_plain(value: Any) -> InputBounds:
    """The inverse of `to_plain`. Raises `ValueError` for anything else."""
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return PartBounds(regions=tuple(_region(part) for part in value))
    if not (isinstance(value, list) and len(value) == 2 and all(type(number) is int for number in value)):
        raise ValueError(f"bounds are two whole numbers, or a list of regions, not {value!r}")
    lowest, highest = value
    return lowest, highest


def _region(part: Mapping[str, Any]) -> Region:
    names = [field.name for field in fields(Region)]
    places = names[2:]
    if (
        sorted(part) != sorted(names)
        or not all(type(part[name]) in (int, float) and isfinite(part[name]) for name in names[:2])
        or not all(type(part[name]) is int and part[name] >= 0 for name in places)
        or not 0 < part["length"] <= part["step"]
        or part["count"] == 0
    ):
        raise ValueError(f"{part!r} is no region")
    return Region(**part)
