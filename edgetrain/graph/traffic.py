"""Memory traffic: the bytes that a step's kernels move, and those that it would move without fusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from edgetrain.graph.ir import Tensor
from edgetrain.units import show_bytes


class Call(Protocol):
    """A kernel call: an op, or what becomes one."""

    @property
    def reads(self) -> Sequence[str]: ...

    @property
    def writes(self) -> Sequence[str]: ...


def moved_bytes(calls: Iterable[Call], tensors: Mapping[str, Tensor]) -> int:
    """What the calls read and write."""
    return sum(tensors[name].nbytes for call in calls for name in (*call.reads, *call.writes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What calls read and write, each tensor as often as it is named. Scratch is not in it: before lowering there is
    none, and both are counted alike. Views move nothing in either."""

    moved_bytes: int
    unfused_bytes: int

    def to_text(self) -> str:
        return f"moves {show_bytes(self.moved_bytes)} a step, {show_bytes(self.unfused_bytes)} before fusion"

    def to_json(self) -> dict[str, int]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, int]) -> Traffic:
        return Traffic(**data)
