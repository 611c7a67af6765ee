"""The report of a tuning run: the time of each kernel before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from edgetrain.units import show_seconds
from edgetrain_tuner.search import LEARNED, RANDOM

_SHOWN = 20  # kernels in the table; all of them in --json
_NAME_WIDTH = 36
_ARITHMETIC = 4.0  # operations a byte, beyond which a kernel is shown in GFLOP/s
_DEEP = {
    LEARNED: "MetaSchedule's candidates were ranked by a model that xgboost learned from the trials",
    RANDOM: "MetaSchedule's candidates were drawn at random: `pip install 'edgetrain[deep]'` ranks them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """A kernel's calls in one step together: as the rules have it, and as it is now. Times are in the real step."""

    name: str
    symbol: str
    calls: int
    source: str  # of its schedule: rule, tuned, deep, transferred, cache (level)
    schedule: str
    seconds: float
    tuned_seconds: float
    flops: int
    moved_bytes: int
    roofline_seconds: float  # the least that the target's rates allow
    trials: int

    @property
    def speedup(self) -> float:
        return self.seconds / self.tuned_seconds if self.tuned_seconds else 1.0

    @property
    def roofline_share(self) -> float:
        return self.roofline_seconds / self.tuned_seconds if self.tuned_seconds else 0.0

    @property
    def rate(self) -> str:
        """GFLOP/s where arithmetic counts, else GB/s."""
        if not self.tuned_seconds:
            return "-"
        if self.flops >= _ARITHMETIC * self.moved_bytes:
            return f"{self.flops / self.tuned_seconds / 1e9:.1f} GFLOP/s"
        return f"{self.moved_bytes / self.tuned_seconds / 1e9:.1f} GB/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    model: str
    target: str
    rates_basis: str
    trials: int
    step_seconds: float
    tuned_step_seconds: float
    entries: int
    deep: str = ""  # the cost model of a deep search
    kernels: tuple[KernelRow, ...]

    @property
    def speedup(self) -> float:
        return self.step_seconds / self.tuned_step_seconds

    def to_json(self) -> dict[str, object]:
        kernels = [
            {**asdict(row), "speedup": row.speedup, "roofline_share": row.roofline_share} for row in self.kernels
        ]
        return {**asdict(self), "speedup": self.speedup, "kernels": kernels}

    def to_text(self) -> str:
        total_s = sum(row.tuned_seconds for row in self.kernels)
        header = ("kernel", "schedule from", "time", "share", "rate", "of roofline", "tuning brought")
        rows = [header, *(self._cells(row, total_s) for row in self.kernels[:_SHOWN])]
        lines = columns(rows)
        hidden = self.kernels[_SHOWN:]
        if hidden:
            left_s = sum(row.tuned_seconds for row in hidden)
            lines.append(f"and {len(hidden)} more, {show_seconds(left_s)} together; --json has all of them")
        lines += [
            "",
            f"a step: {show_seconds(self.step_seconds)} by the rules, {show_seconds(self.tuned_step_seconds)} tuned "
            f"({self.speedup:.2f}x) after {self.trials} trials; {self.entries} schedules stored",
            f"the roofline is that of {self.target}'s rates ({self.rates_basis})",
        ]
        if self.deep:
            lines.append(_DEEP[self.deep])
        return "\n".join(lines) + "\n"

    def _cells(self, row: KernelRow, total_s: float) -> tuple[str, ...]:
        brought = f"{row.speedup:.2f}x" if row.source != "rule" else ("nothing" if row.trials else "not tried")
        return (
            shown_name(row.name, row.calls),
            row.source,
            show_seconds(row.tuned_seconds),
            f"{row.tuned_seconds / total_s:.0%}" if total_s else "-",
            row.rate,
            f"{row.roofline_share:.0%}",
            brought,
        )


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows as lines of a table."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def shown_name(name: str, calls: int) -> str:
    """A kernel's name as a table has room for it, with how often a step calls it."""
    short = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
    return short if calls == 1 else f"{short} x{calls}"
