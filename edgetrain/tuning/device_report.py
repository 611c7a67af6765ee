"""What tuning through a runner found: kernels alone, as the device ran them, or as an emulator checked them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from edgetrain.tuning.report import columns, shown_name
from edgetrain.units import show_seconds
from edgetrain_tuner.measure.outcome import CHECKED, MEASURED, WRONG

_SHOWN = 20  # kernels in the table; all of them in --json


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A kernel on the device. Seconds are of one call alone, the rule's and the best's; 0 where nothing was timed."""

    name: str
    symbol: str
    calls: int
    source: str
    schedule: str
    seconds: float = 0.0
    tuned_seconds: float = 0.0
    largest_error: float = 0.0  # of what is right
    outcomes: Mapping[str, int] = field(default_factory=dict)  # trials by what became of them
    failure: str = ""  # why nothing could be tried

    @property
    def speedup(self) -> float:
        return self.seconds / self.tuned_seconds if self.tuned_seconds else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    model: str
    target: str
    runner: str
    is_emulated: bool
    entries: int
    untried: int  # kernels that there were no trials or no time for
    kernels: tuple[DeviceRow, ...]

    @property
    def outcomes(self) -> Mapping[str, int]:
        return sum((Counter(row.outcomes) for row in self.kernels), Counter())

    @property
    def trials(self) -> int:
        return sum(self.outcomes.values())

    @property
    def is_good(self) -> bool:
        """Of an emulated check: nothing computes something else, and every kernel could be tried."""
        return not self.outcomes.get(WRONG) and not any(row.failure for row in self.kernels)

    def to_json(self) -> dict[str, object]:
        kernels = [{**asdict(row), "speedup": row.speedup} for row in self.kernels]
        return {**asdict(self), "trials": self.trials, "outcomes": dict(self.outcomes), "kernels": kernels}

    def to_text(self) -> str:
        lines = self._checked() if self.is_emulated else self._timed()
        lines += [f"{row.name} could not be tried: {row.failure}" for row in self.kernels if row.failure]
        if self.untried:
            lines.append(f"{self.untried} kernels were not tried: there were no trials or no time left for them")
        return "\n".join(lines) + "\n"

    def _checked(self) -> list[str]:
        header = ("kernel", "right", "wrong", "not run", "largest error")
        rows = [
            (
                shown_name(row.name, row.calls),
                str(row.outcomes.get(CHECKED, 0)),
                str(row.outcomes.get(WRONG, 0)),
                str(_neither(row.outcomes)),
                f"{row.largest_error:.0e}" if row.outcomes.get(CHECKED) else "-",
            )
            for row in self.kernels[:_SHOWN]
        ]
        found = self.outcomes
        return [
            *columns([header, *rows]),
            *self._hidden(),
            "",
            f"{self.target}, emulated: checked, not timed",
            f"{found.get(CHECKED, 0)} schedules compute what the plain kernels do, "
            f"{found.get(WRONG, 0)} something else, {_neither(found)} did not run; {self.entries} stored as failed",
        ]

    def _timed(self) -> list[str]:
        header = ("kernel", "schedule from", "time of a call", "tuning brought")
        rows = [
            (
                shown_name(row.name, row.calls),
                row.source,
                show_seconds(row.tuned_seconds) if row.tuned_seconds else "-",
                f"{row.speedup:.2f}x" if row.speedup != 1.0 else "nothing",
            )
            for row in self.kernels[:_SHOWN]
        ]
        before_s = sum(row.calls * row.seconds for row in self.kernels)
        after_s = sum(row.calls * row.tuned_seconds for row in self.kernels)
        brought = f" ({before_s / after_s:.2f}x)" if after_s else ""
        return [
            *columns([header, *rows]),
            *self._hidden(),
            "",
            f"a step's calls of these kernels: {show_seconds(before_s)} by the rules, {show_seconds(after_s)} tuned"
            f"{brought} after {self.trials} trials; {self.entries} schedules stored",
            f"each was timed alone on {self.target}, by `{self.runner}`; the step itself was not run there",
        ]

    def _hidden(self) -> list[str]:
        hidden = self.kernels[_SHOWN:]
        return [f"and {len(hidden)} more; --json has all of them"] if hidden else []


def _neither(outcomes: Mapping[str, int]) -> int:
    """How many neither computed the same nor something else: refused, crashed, too slow."""
    return sum(count for status, count in outcomes.items() if status not in (CHECKED, MEASURED, WRONG))
