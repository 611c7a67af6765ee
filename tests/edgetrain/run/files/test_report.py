from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.cost.carbon import WORLD_AVERAGE
from edgetrain.errors import DataError
from edgetrain.graph.traffic import Traffic
from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.report import PLOT, Energy, RunReport, report_plot, write_report
from edgetrain.run.files.sessions import Session
from edgetrain.run.limits.period import Period

REPORT = RunReport(
    planned_peak_bytes=95_000_000,
    measured_peak_bytes=94_500_000,
    planned_process_bytes=98_000_000,
    process_peak_bytes=99_000_000,
    budget_bytes=100_000_000,
    planned_seconds_per_step=0.25,
    seconds_per_step=0.3,
    steps=20,
    epochs=2.0,
    ending="finished",
    losses=(2.3, 1.1, 0.4),
    validations=(
        Validation(epoch=1, step=10, metrics={"loss": 1.0, "accuracy": 0.5}),
        Validation(epoch=2, step=20, metrics={"loss": 0.8, "accuracy": 0.75}),
    ),
    best_step=20,
    test={"accuracy": 0.74, "loss": 0.81},
    model_sha256="a" * 64,
    program_sha256="b" * 64,
    parameters_sha256="c" * 64,
    target="host",
    ran_on="x86_64",
    threads=2,
    seed=5,
    versions={"edgetrain": "0.1.0"},
    recipe={"train": {"batch": 4}},
)


def test_the_report_holds_every_number_under_its_name() -> None:
    data = json.loads(REPORT.to_json())
    assert data["format"] == "edgetrain.report/1"
    assert data["test_accuracy"] == 0.74
    assert data["test_loss"] == 0.81
    assert data["losses"] == [2.3, 1.1, 0.4]
    assert data["validations"][1] == {"epoch": 2, "step": 20, "metrics": {"loss": 0.8, "accuracy": 0.75}}
    assert data["recipe"]["train"]["batch"] == 4
    assert (data["planned_peak_bytes"], data["measured_peak_bytes"]) == (95_000_000, 94_500_000)
    assert data["is_within_budget"] is True


def test_what_was_not_measured_is_null() -> None:
    data = json.loads(replace(REPORT, process_peak_bytes=None, seconds_per_step=None).to_json())
    assert data["process_peak_bytes"] is None
    assert data["seconds_per_step"] is None


def test_a_number_that_is_none_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(REPORT, losses=(float("nan"),)).to_json()


def test_the_text_shows_planned_beside_measured() -> None:
    assert REPORT.to_text() == (
        "memory         peak 94.5MB measured, 95MB planned, budget 100MB: kept; the process grew by 99MB, "
        "98MB planned with code and stacks\n"
        "time           300.0 ms a step measured, 250.0 ms planned\n"
        "loss           2.3 at first, 0.4 at last; validation after epoch 2: loss 0.8, accuracy 0.75\n"
        "test accuracy  0.74\n"
        "test loss      0.81\n"
        "trained        20 steps, 2 epochs (finished), seed 5\n"
        "ran on         x86_64, 2 threads (target host)\n"
    )


def test_what_a_step_moves_is_told_where_it_was_counted() -> None:
    counted = replace(REPORT, traffic=Traffic(moved_bytes=3000, unfused_bytes=8000))
    assert "\ntraffic        moves 3kB a step, 8kB before fusion\n" in counted.to_text()
    assert json.loads(counted.to_json())["traffic"] == {"moved_bytes": 3000, "unfused_bytes": 8000}


@pytest.mark.parametrize(("measured", "word"), [(100_000_000, "kept"), (100_000_001, "EXCEEDED")])
def test_the_budget_is_judged_by_what_was_measured(measured: int, word: str) -> None:
    """By what the process grew by; where the system does not say, by the arena and what is planned beside it."""
    assert f"budget 100MB: {word}" in replace(REPORT, process_peak_bytes=measured).to_text()
    unknown = replace(REPORT, process_peak_bytes=None, measured_peak_bytes=measured - 3_000_000)
    assert f"budget 100MB: {word}" in unknown.to_text()


def test_a_run_without_limits_validation_or_steps_has_a_text_and_a_plot() -> None:
    bare = replace(
        REPORT,
        budget_bytes=None,
        process_peak_bytes=None,
        planned_seconds_per_step=None,
        seconds_per_step=None,
        steps=0,
        losses=(),
        validations=(),
        test={},
        threads=1,
    )
    assert "budget" not in bare.to_text()
    assert "no step was taken" in bare.to_text()
    assert "log.jsonl was removed" in replace(bare, steps=3).to_text()
    assert "1 thread (" in bare.to_text()
    ElementTree.fromstring(report_plot(bare))


def test_the_plot_has_a_panel_for_the_losses_and_one_for_each_other_metric() -> None:
    texts = [element.text for element in ElementTree.fromstring(report_plot(REPORT)).iter()]
    assert texts.count("loss") == 1
    assert texts.count("accuracy") == 1
    assert texts.count("training") == 1
    assert texts.count("validation") == 2


def test_a_long_run_is_drawn_at_the_steps_of_its_losses() -> None:
    long = replace(REPORT, steps=90_000, losses=(3.0, 1.0, 2.0), loss_steps=(1, 40_000, 90_000), validations=())
    assert long.curve == ((1.0, 3.0), (40_000.0, 1.0), (90_000.0, 2.0))
    assert "80000" in report_plot(long)
    assert "3 at first, 2 at last" in long.to_text()
    assert RunReport.from_json(long.to_json()) == long


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write_report(REPORT, tmp_path)
    first = path.read_bytes(), (tmp_path / PLOT).read_bytes()
    write_report(REPORT, tmp_path)
    assert (path.read_bytes(), (tmp_path / PLOT).read_bytes()) == first
    assert json.loads(first[0])["seed"] == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plot.svg", "report.json"]


def session(*, joules: float | None, after_step: int = 0) -> Session:
    sensor = "hwmon ina226" if joules is not None else None
    return Session(
        after_step=after_step,
        steps=20,
        seconds=9.0,
        step_seconds=6.0,
        modelled_j=1800.0,
        measured_j=joules,
        sensor=sensor,
    )


def energy(*, joules: float | None, is_target_here: bool = True) -> Energy:
    return Energy.of([session(joules=joules)], carbon=WORLD_AVERAGE, is_target_here=is_target_here)


def test_without_a_sensor_energy_is_called_modelled() -> None:
    report = replace(REPORT, energy=energy(joules=None))
    data = json.loads(report.to_json())["energy"]
    assert (data["measured_j"], data["sensor"], data["is_basis_measured"]) == (None, None, False)
    assert data["co2_g"] == pytest.approx(1800 / 3.6e6 * 473)
    (line,) = (line for line in report.to_text().splitlines() if line.startswith("energy"))
    assert "1.8 kJ modelled for 20 steps" in line
    assert " J measured" not in line
    assert f"236 mg CO2 of what is modelled at 473 g/kWh ({WORLD_AVERAGE.source})" in line


def test_with_a_sensor_its_joules_come_first_and_co2_is_of_them() -> None:
    found = energy(joules=7200.0)
    assert found.co2_g == pytest.approx(7200 / 3.6e6 * 473)
    assert found.to_text().startswith("7.2 kJ measured (hwmon ina226, with validation and idle), 1.8 kJ modelled")


def test_a_sensor_of_this_machine_says_nothing_about_another_targets_emissions() -> None:
    found = energy(joules=7200.0, is_target_here=False)
    assert found.measured_j == 7200.0
    assert found.co2_g == pytest.approx(1800 / 3.6e6 * 473)


def test_a_report_without_energy_has_no_line_of_it() -> None:
    assert "energy" not in REPORT.to_text()


def test_energy_and_time_are_those_of_all_sessions() -> None:
    sessions = (session(joules=100.0), session(joules=50.0, after_step=20))
    found = Energy.of(sessions, carbon=WORLD_AVERAGE, is_target_here=True)
    assert (found.steps, found.modelled_j, found.measured_j, found.sensor) == (40, 3600.0, 150.0, "hwmon ina226")
    assert "; 18.0 s in 2 sessions" in replace(REPORT, sessions=sessions).to_text()


def test_a_session_without_a_sensor_leaves_the_whole_unmeasured() -> None:
    found = Energy.of([session(joules=100.0), session(joules=None)], carbon=WORLD_AVERAGE, is_target_here=True)
    assert (found.measured_j, found.sensor, found.is_basis_measured) == (None, None, False)


def test_metrics_of_the_validation_part_are_called_so() -> None:
    report = replace(REPORT, evaluated_part="validation", kept_epoch=2, kept_because="the highest validation accuracy")
    data = json.loads(report.to_json())
    assert (data["validation_accuracy"], data["evaluated_part"]) == (0.74, "validation")
    assert not [key for key in data if key.startswith("test")]
    lines = report.to_text().splitlines()
    assert "validation accuracy  0.74 (these samples chose the epoch; there is no test part)" in lines
    assert "kept                 epoch 2: the highest validation accuracy" in lines


@pytest.mark.parametrize("part", ["test", "validation"])
def test_a_report_is_read_back_from_what_it_wrote(part: str) -> None:
    report = replace(
        REPORT,
        evaluated_part=part,
        energy=energy(joules=None),
        sessions=(session(joules=3.0),),
        traffic=Traffic(moved_bytes=3000, unfused_bytes=8000),
        phases=(Period(after_step=0, cause="", budget_bytes=None, planned_peak_bytes=1, measured_peak_bytes=1),),
    )
    assert RunReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "edgetrain.report/9"}, "its format is not"),
        ({"steps": "20"}, "`steps` is `20`, expected a whole number"),
        ({"losses": [1.0, None]}, r"`losses\[1\]` is `None`, expected a finite number"),
        ({"validations": [{"epoch": 1}]}, r"`validations\[0\].step` is missing"),
        ({"recipe": 3}, "`recipe` is no table"),
        ({"losses": 3}, "`losses` is no list"),
    ],
)
def test_a_report_that_is_broken_is_refused(change: dict[str, object], told: str) -> None:
    text = json.dumps({**json.loads(REPORT.to_json()), **change})
    with pytest.raises(DataError, match=told):
        RunReport.from_json(text, where="report.json")


def test_a_report_with_a_key_of_a_later_version_is_read() -> None:
    text = json.dumps({**json.loads(REPORT.to_json()), "colour": "blue"})
    assert RunReport.from_json(text) == REPORT


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="cannot be used"):
        RunReport.from_json(text)
