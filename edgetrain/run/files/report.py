"""The report of a run: planned and measured memory, the losses, and everything needed to repeat the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from edgetrain.cost.carbon import CarbonIntensity
from edgetrain.dataset.reading import Scaling
from edgetrain.drawing.table import to_html_table
from edgetrain.errors import DataError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.sealed import parse_sealed, sealed
from edgetrain.graph.traffic import Traffic
from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.plain_data import record_from_plain
from edgetrain.run.files.plot import Panel, Point, Series, draw
from edgetrain.run.files.sessions import Session
from edgetrain.run.limits.period import Period
from edgetrain.units import show_bytes, show_grams, show_joules, show_seconds

FORMAT = "edgetrain.report/1"
REPORT = "report.json"
PLOT = "plot.svg"
TEST, VALIDATION = "test", "validation"

Json = str | int | float | bool | None | list["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What the run's steps used, over all of its sessions: those that a crash made it take again count twice.

    The model counts what is above idle on the target, a sensor all it sees here. CO2 is that of what was measured,
    where the target is this machine; else of what was modelled.
    """

    steps: int
    modelled_j: float
    measured_j: float | None = None  # None: there was no sensor that could be read, in one session at least
    sensor: str | None = None
    is_basis_measured: bool = False  # what `co2_g` is of
    co2_g: float
    co2_g_per_kwh: float
    co2_source: str

    @staticmethod
    def of(sessions: Sequence[Session], *, carbon: CarbonIntensity, is_target_here: bool) -> Energy:
        modelled_j = sum(session.modelled_j for session in sessions)
        measured = [session.measured_j for session in sessions if session.measured_j is not None]
        # Part of the energy would pass for all of it.
        measured_j = sum(measured) if sessions and len(measured) == len(sessions) else None
        is_measured = measured_j is not None and is_target_here
        sensors = dict.fromkeys(session.sensor for session in sessions if session.sensor is not None)
        return Energy(
            steps=sum(session.steps for session in sessions),
            modelled_j=modelled_j,
            measured_j=measured_j,
            sensor=", ".join(sensors) if measured_j is not None else None,
            is_basis_measured=is_measured,
            co2_g=carbon.grams(measured_j if is_measured and measured_j is not None else modelled_j),
            co2_g_per_kwh=carbon.g_per_kwh,
            co2_source=carbon.source,
        )

    def to_text(self) -> str:
        parts = []
        if self.measured_j is not None:
            parts.append(f"{show_joules(self.measured_j)} measured ({self.sensor}, with validation and idle)")
        parts.append(f"{show_joules(self.modelled_j)} modelled for {self.steps} steps, above idle")
        co2 = f"{show_grams(self.co2_g)} CO2 of what is {'measured' if self.is_basis_measured else 'modelled'}"
        return f"{', '.join(parts)}; {co2} at {self.co2_g_per_kwh:g} g/kWh ({self.co2_source})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunReport:
    """`None` means not measured or not limited, never zero.

    Losses are one for each step, from the first on. Of a run of more than 10,000 steps there are that many: the first,
    the last, and of each stretch of steps the lowest and the highest, whose steps are `loss_steps`. All are in
    `log.jsonl`. Of more than 2,000 validations there are every second, or fourth, and so on, the best and the last.

    Planned, measured and budget are those of the last period; a run whose budget moved has several.
    """

    planned_peak_bytes: int
    measured_peak_bytes: int
    planned_process_bytes: int  # the peak, the program's own code and the stacks of its threads
    process_peak_bytes: int | None  # growth over the process before the program was loaded
    budget_bytes: int | None
    planned_seconds_per_step: float | None
    solver: str | None = None  # who planned
    plan_gap: float | None = None  # how much cheaper a plan could be at most, as a share, where that is proven
    seconds_per_step: float | None
    energy: Energy | None = None
    steps: int
    epochs: float
    ending: str
    losses: tuple[float, ...]
    loss_steps: tuple[int, ...] = ()  # empty: from 1 on
    validations: tuple[Validation, ...] = ()
    best_step: int | None = None
    kept_epoch: int | None = None  # whose parameters the model has; None: the last ones
    kept_because: str = ""
    sessions: tuple[Session, ...] = ()  # a run that was resumed has several
    evaluated_part: str = TEST  # what `test` was computed on: `validation` where the data has no test part
    test: Mapping[str, float] = field(default_factory=dict)  # by metric; written as `test_accuracy`, by the part
    model_sha256: str
    program_sha256: str
    parameters_sha256: str
    target: str
    ran_on: str
    threads: int
    seed: int
    versions: Mapping[str, str] = field(default_factory=dict)
    recipe: Mapping[str, Json] = field(default_factory=dict)
    phases: tuple[Period, ...] = ()  # plan by plan, the last one included
    kernels: Mapping[str, Json] = field(default_factory=dict)  # how many have their schedule from where
    traffic: Traffic | None = None  # of a step that recomputes nothing
    target_scaling: Scaling | None = None  # losses are of scaled targets then; metrics are in the data's units

    @property
    def curve(self) -> tuple[Point, ...]:
        """Each loss that is here, with its step."""
        return loss_curve(self.loss_steps, self.losses)

    @property
    def is_within_budget(self) -> bool:
        """Whether what was measured stayed inside the budget of its time, not what was planned.

        What the process grew by counts, over the whole run; where the system does not say, the arena as measured and
        the rest as planned.
        """
        budgets = [self.budget_bytes, *(period.budget_bytes for period in self.phases)]
        largest = max((nbytes for nbytes in budgets if nbytes is not None), default=0)
        beside_bytes = self.planned_process_bytes - self.planned_peak_bytes
        process_bytes = (
            self.process_peak_bytes if self.process_peak_bytes is not None else self.measured_peak_bytes + beside_bytes
        )
        is_within = None in budgets or process_bytes <= largest
        return is_within and all(period.is_within_budget for period in self.phases)

    def to_json(self) -> str:
        """Canonical: the same report gives the same bytes."""
        data = {"format": FORMAT, **asdict(self), "is_within_budget": self.is_within_budget}
        data |= {f"{self.evaluated_part}_{name}": value for name, value in data.pop("test").items()}
        return json.dumps(data, sort_keys=True, indent=1, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str = "the report") -> RunReport:
        """The inverse of `to_json`. Raises `DataError` naming `where` for anything else."""
        try:
            data = parse_sealed(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError(f"its format is not `{FORMAT}`")
            part = f"{data.get('evaluated_part', TEST)}_"
            data["test"] = {key.removeprefix(part): value for key, value in data.items() if key.startswith(part)}
            return record_from_plain(RunReport, data)
        except ValueError as error:
            raise DataError(f"{where} cannot be used", why=str(error), fix="train again, or restore it") from error

    def __repr__(self) -> str:
        """One line: the losses alone are thousands of numbers."""
        peak = f"peak {show_bytes(self.measured_peak_bytes)}"
        budget = f" of {show_bytes(self.budget_bytes)}" if self.budget_bytes is not None else ""
        metrics = "".join(f", {name} {value:.4g}" for name, value in self.test.items())
        return f"<RunReport: {self.steps} steps, {peak}{budget}{metrics}>"

    def _repr_html_(self) -> str:
        return to_html_table(repr(self).strip("<>"), self.rows())

    def to_text(self) -> str:
        """The last screen of a run: a line for each thing that a person wants to know."""
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """A name and a text for each thing that a person wants to know."""
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return [
            ("memory", self._memory_text()),
            *((("plans", self._periods_text()),) if len(self.phases) > 1 else ()),
            ("time", self._time_text()),
            *((("traffic", self.traffic.to_text()),) if self.traffic is not None else ()),
            *((("energy", self.energy.to_text()),) if self.energy is not None else ()),
            ("loss", self._loss_text()),
            *((("kept", self._kept_text()),) if self.kept_because else ()),
            *(
                (f"{self.evaluated_part} {name.replace('_', ' ')}", self._shown(value))
                for name, value in self.test.items()
            ),
            ("trained", f"{self.steps} steps, {self.epochs:.3g} epochs ({self.ending}), seed {self.seed}"),
            (
                "ran on",
                f"{self.ran_on}, {threads} (target {self.target})",
            ),
        ]

    def _memory_text(self) -> str:
        text = f"peak {show_bytes(self.measured_peak_bytes)} measured, {show_bytes(self.planned_peak_bytes)} planned"
        if self.budget_bytes is not None:
            text += f", budget {show_bytes(self.budget_bytes)}: {'kept' if self.is_within_budget else 'EXCEEDED'}"
        if self.process_peak_bytes is not None:
            planned = f"{show_bytes(self.planned_process_bytes)} planned with code and stacks"
            text += f"; the process grew by {show_bytes(self.process_peak_bytes)}, {planned}"
        return text

    def _periods_text(self) -> str:
        parts = []
        for period in self.phases:
            began = f"after step {period.after_step} ({period.cause}) " if period.cause else ""
            parts.append(f"{began}peak {show_bytes(period.measured_peak_bytes)}")
            if period.budget_bytes is not None:
                parts[-1] += f" of {show_bytes(period.budget_bytes)}"
        return ", ".join(parts)

    def _time_text(self) -> str:
        measured = "no step" if self.seconds_per_step is None else f"{show_seconds(self.seconds_per_step)} a step"
        text = f"{measured} measured"
        if self.planned_seconds_per_step is not None:
            text += f", {show_seconds(self.planned_seconds_per_step)} planned"
        if len(self.sessions) > 1:
            text += f"; {show_seconds(sum(s.seconds for s in self.sessions))} in {len(self.sessions)} sessions"
        return text

    def _kept_text(self) -> str:
        return f"epoch {self.kept_epoch}: {self.kept_because}" if self.kept_epoch is not None else self.kept_because

    def _shown(self, value: float) -> str:
        is_biased = self.evaluated_part == VALIDATION and self.kept_epoch is not None
        return f"{value:.4g}{' (these samples chose the epoch; there is no test part)' if is_biased else ''}"

    def _loss_text(self) -> str:
        if not self.losses:
            return "no step was taken" if self.steps == 0 else "not known, for log.jsonl was removed"
        text = f"{self.losses[0]:.4g} at first, {self.losses[-1]:.4g} at last"
        if self.target_scaling is not None:
            scaling = self.target_scaling
            text += f" (of targets scaled as (value - {scaling.mean:.4g}) / {scaling.std:.4g}; metrics are as stored)"
        if self.validations:
            last = self.validations[-1]
            shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in last.metrics.items())
            text += f"; validation after epoch {last.epoch}: {shown}"
        return text


def loss_curve(steps: Sequence[int], losses: Sequence[float]) -> tuple[Point, ...]:
    """As a report holds them: without `steps` the losses are those of all steps from the first on."""
    return tuple((float(step), loss) for step, loss in zip(steps or range(1, len(losses) + 1), losses, strict=True))


def report_plot(report: RunReport) -> str:
    """The curves of the run as SVG: the losses, and below them a panel for each validation metric."""
    panels = [Panel(title="loss", series=(Series(name="training", points=report.curve),))]
    for name in report.validations[0].metrics if report.validations else ():
        points = tuple((float(v.step), v.metrics[name]) for v in report.validations if name in v.metrics)
        validation = Series(name="validation", points=points, is_marked=True)
        if name == "loss":
            panels[0] = Panel(title="loss", series=(*panels[0].series, validation))
        else:
            panels.append(Panel(title=name.replace("_", " "), series=(validation,)))
    return draw(panels, x_label="step")


def write_report(report: RunReport, out: Path) -> Path:
    """Writes `report.json` and `plot.svg`, each whole or not at all. Raises `DeviceError` when the disk refuses."""
    for name, text in ((PLOT, report_plot(report)), (REPORT, sealed(report.to_json()))):
        with replaced_file(out / name) as file:
            file.write(text.encode())
    return out / REPORT
