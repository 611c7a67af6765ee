"""The report of a run: planned and measured memory, the losses, and everything needed to repeat the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from edgetrain.cost.carbon import CarbonIntensity
from edgetrain.files.atomic_file import replaced_file
from edgetrain.graph.traffic import Traffic
from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.plot import Panel, Series, draw
from edgetrain.run.limits.period import Period
from edgetrain.run.sensors.energy import EnergyMeter
from edgetrain.units import show_bytes, show_grams, show_joules, show_seconds

FORMAT = "edgetrain.report/1"
REPORT = "report.json"
PLOT = "plot.svg"

Json = str | int | float | bool | None | list["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What this session's steps used. The model counts what is above idle on the target, a sensor all it sees here.

    CO2 is that of what was measured, where the target is this machine; else of what was modelled.
    """

    steps: int
    modelled_j: float
    measured_j: float | None = None  # None: this machine has no sensor that can be read
    sensor: str | None = None
    is_basis_measured: bool = False  # what `co2_g` is of
    co2_g: float
    co2_g_per_kwh: float
    co2_source: str

    @staticmethod
    def of(
        *, steps: int, modelled_j: float, meter: EnergyMeter, carbon: CarbonIntensity, is_target_here: bool
    ) -> Energy:
        measured_j = meter.joules
        is_measured = measured_j is not None and is_target_here
        return Energy(
            steps=steps,
            modelled_j=modelled_j,
            measured_j=measured_j,
            sensor=meter.sensor.name if meter.sensor is not None and measured_j is not None else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """`None` means not measured or not limited, never zero. Losses are one for each step, from the first on.

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
    validations: tuple[Validation, ...] = ()
    best_step: int | None = None
    test: Mapping[str, float] = field(default_factory=dict)  # by metric; `accuracy` is written as `test_accuracy`
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

    @property
    def is_within_budget(self) -> bool:
        """Whether what was measured stayed inside the budget of its time, not what was planned."""
        is_within = self.budget_bytes is None or self.measured_peak_bytes <= self.budget_bytes
        return is_within and all(period.is_within_budget for period in self.phases)

    def to_json(self) -> str:
        """Canonical: the same report gives the same bytes."""
        data = {"format": FORMAT, **asdict(self), "is_within_budget": self.is_within_budget}
        data |= {f"test_{name}": value for name, value in data.pop("test").items()}
        return json.dumps(data, sort_keys=True, indent=1, allow_nan=False) + "\n"

    def to_text(self) -> str:
        """The last screen of a run: a line for each thing that a person wants to know."""
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        lines = [
            ("memory", self._memory_text()),
            *((("plans", self._periods_text()),) if len(self.phases) > 1 else ()),
            ("time", self._time_text()),
            *((("traffic", self.traffic.to_text()),) if self.traffic is not None else ()),
            *((("energy", self.energy.to_text()),) if self.energy is not None else ()),
            ("loss", self._loss_text()),
            *((f"test {name.replace('_', ' ')}", f"{value:.4g}") for name, value in self.test.items()),
            ("trained", f"{self.steps} steps, {self.epochs:.3g} epochs ({self.ending}), seed {self.seed}"),
            (
                "ran on",
                f"{self.ran_on}, {threads} (target {self.target})",
            ),
        ]
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in lines) + "\n"

    def _memory_text(self) -> str:
        text = f"peak {show_bytes(self.measured_peak_bytes)} measured, {show_bytes(self.planned_peak_bytes)} planned"
        if self.budget_bytes is not None:
            text += f", budget {show_bytes(self.budget_bytes)}: {'kept' if self.is_within_budget else 'EXCEEDED'}"
        if self.process_peak_bytes is not None:
            planned = f"{show_bytes(self.planned_process_bytes)} planned with code, stacks and mapped files"
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
        if self.planned_seconds_per_step is None:
            return f"{measured} measured"
        return f"{measured} measured, {show_seconds(self.planned_seconds_per_step)} planned"

    def _loss_text(self) -> str:
        if not self.losses:
            return "no step was taken"
        text = f"{self.losses[0]:.4g} at first, {self.losses[-1]:.4g} at last"
        if self.validations:
            last = self.validations[-1]
            shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in last.metrics.items())
            text += f"; validation after epoch {last.epoch}: {shown}"
        return text


def report_plot(report: RunReport) -> str:
    """The curves of the run as SVG: the losses, and below them a panel for each validation metric."""
    steps = tuple((float(i), loss) for i, loss in enumerate(report.losses, start=1))
    panels = [Panel(title="loss", series=(Series(name="training", points=steps),))]
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
    for name, text in ((PLOT, report_plot(report)), (REPORT, report.to_json())):
        with replaced_file(out / name) as file:
            file.write(text.encode())
    return out / REPORT
