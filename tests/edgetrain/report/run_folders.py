"""Run folders as a finished run leaves them, made up without training: their names are what a stranger might choose."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from edgetrain.drawing.pixels import pixels_to_uri
from edgetrain.graph.ir import to_json as graph_to_json
from edgetrain.planner.dump import to_json as plan_to_json
from edgetrain.planner.make_plan import make_plan, smallest_plan
from edgetrain.planner.plan import Budget
from edgetrain.program.artifact import GRAPH, PLAN
from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.report import RunReport, write_report
from edgetrain.run.learned.calibration import CalibrationTally
from edgetrain.run.learned.class_outcomes import ConfusionTally
from edgetrain.run.learned.learned import HardSample, Learned, write_learned
from edgetrain.run.learned.value_outcomes import ValueTally
from edgetrain.units import Bytes
from tests.edgetrain.planner.training_graphs import chain, unit_costs

HOSTILE = '<script>alert("class")</script>'
HOSTILE_FILE = "a&b/'\"><img src=x onerror=alert(1)>.png"
CLASSES = (HOSTILE, "cat", "dog")
STEPS = 120


def report(**changes: object) -> RunReport:
    losses = tuple(2.5 * math.exp(-step / 20) + 0.05 * math.sin(step) ** 2 for step in range(STEPS))
    found = RunReport(
        planned_peak_bytes=95_000,
        measured_peak_bytes=94_208,
        planned_process_bytes=98_000,
        process_peak_bytes=98_304,
        budget_bytes=100_000,
        planned_seconds_per_step=0.0025,
        seconds_per_step=0.003,
        solver="greedy",
        steps=STEPS,
        epochs=4.0,
        ending="finished",
        losses=losses,
        validations=tuple(
            Validation(epoch=e, step=30 * e, metrics={"loss": 1 / e, "accuracy": accuracy})
            for e, accuracy in ((1, 0.5), (2, 0.8), (3, 0.9), (4, 0.85))
        ),
        best_step=90,
        test={"accuracy": 0.875, "loss": 0.4},
        model_sha256="a" * 64,
        program_sha256="b" * 64,
        parameters_sha256="c" * 64,
        target="host",
        ran_on="this host",
        threads=2,
        seed=0,
        versions={"numpy": "2.0"},
        recipe={"name": "made-up", "metric": "accuracy", "train": {"epochs": 4, "batch": 8}},
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def write_run(folder: Path, *, learned: Learned | None = None, with_plan: bool = True, **changes: object) -> Path:
    """A finished run whose plan recomputes."""
    (folder / "program").mkdir(parents=True)
    if learned is not None:
        changes = {"evaluated_part": learned.part, **changes}
    write_report(report(**changes), folder)
    if learned is not None:
        write_learned(learned, folder)
    if with_plan:
        graph = chain(12)
        costs = {"step": unit_costs(graph)}
        least = smallest_plan(graph, Budget(), costs)
        plan = make_plan(graph, Budget(memory_bytes=Bytes(least.peak_bytes)), costs)
        (folder / "program" / GRAPH).write_text(graph_to_json(graph), encoding="utf-8")
        (folder / "program" / PLAN).write_text(plan_to_json(plan), encoding="utf-8")
    return folder


def learned_classes() -> Learned:
    random = np.random.default_rng(0)
    actual = random.integers(0, 3, 200)
    predicted = np.where(random.random(200) < 0.85, actual, (actual + 1) % 3)
    confusion, calibration = ConfusionTally(3), CalibrationTally()
    confusion.add(actual, predicted)
    calibration.add(0.5 + random.random(200) / 2, actual == predicted)
    picture = pixels_to_uri(random.integers(0, 256, (8, 8)).astype(np.uint8))
    wrong = HardSample(
        index=3,
        row=17,
        loss=4.2,
        is_wrong=True,
        actual=0,
        predicted=1,
        confidence=0.97,
        file=HOSTILE_FILE,
        picture=picture,
    )
    text = HardSample(
        index=9, row=20, loss=2.5, is_wrong=False, actual=2, predicted=2, confidence=0.4, text=f"Dear {HOSTILE} friend"
    )
    return Learned(
        part="test",
        samples=200,
        class_names=CLASSES,
        classes=confusion.finish(CLASSES),
        calibration=calibration.finish(),
        hardest=(wrong, text),
    )


def learned_values() -> Learned:
    random = np.random.default_rng(1)
    true = random.normal(200, 40, 300)
    guess = true + random.normal(0, 8, 300)
    tally = ValueTally(true)
    tally.add(true, guess)
    worst = int(np.abs(true - guess).argmax())
    hard = HardSample(
        index=worst,
        row=worst,
        loss=1.0,
        is_wrong=None,
        actual=float(true[worst]),
        predicted=float(guess[worst]),
        confidence=None,
        text="rooms 3, area 71",
    )
    return Learned(part="validation", samples=300, values=tally.finish(), hardest=(hard,))
