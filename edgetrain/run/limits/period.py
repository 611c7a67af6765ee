"""What a run did under one plan and one budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A part of the run under one plan and one budget, planned beside measured."""

    after_step: int  # it began when this many steps were done
    cause: str  # what ended the one before; empty for the first
    budget_bytes: int | None
    planned_peak_bytes: int
    beside_bytes: int = 0  # what the process needs beside the arena, as planned
    measured_peak_bytes: int

    @property
    def is_within_budget(self) -> bool:
        return self.budget_bytes is None or self.measured_peak_bytes + self.beside_bytes <= self.budget_bytes
