"""`edgetrain fit`, as a process: what it leaves behind, and how it fails."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.cli.command import parse_arguments
from edgetrain.cli.fit import VERB, with_trial_time
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.run.files.checkpoint import NEWEST, PREVIOUS, read_header
from edgetrain.targets.profile import load_target
from tests.edgetrain.cli.conftest import PLANNABLE, SHORT, Command
from tests.edgetrain.cli.live_runs import BESIDE_BYTES

pytestmark = pytest.mark.compile

FILES = ("checkpoint.bin", "job.json", "log.jsonl", "model.onnx", "plot.svg", "recipe.json", "report.json")


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_a_run_leaves_its_files_and_keeps_its_budget(short_run: Path) -> None:
    assert {path.name for path in short_run.iterdir()} >= {*FILES, "program"}
    report = report_of(short_run)
    assert report["is_within_budget"]
    assert report["budget_bytes"] == 1_200_000
    assert report["steps"] == 7


def test_the_process_grows_by_what_was_planned(short_run: Path) -> None:
    report = report_of(short_run)
    assert report["process_peak_bytes"] == pytest.approx(report["planned_process_bytes"], rel=0.1)


def test_sizes_are_echoed_both_ways_and_the_report_ends_with_the_folder(command: Command, tmp_path: Path) -> None:
    done = command("fit", *SHORT, "--budget", "1MB", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "budget 1MB (976.6KiB)" in done.stderr
    assert done.stdout.startswith("memory ")
    assert done.stdout.endswith("\nrun folder: runs/digits\n")


def test_a_second_run_takes_the_next_folder_and_gives_the_same_bits(command: Command, copied_run: Path) -> None:
    done = command("fit", *SHORT, "--budget", "1200kB", "--json", "-q", cwd=copied_run.parents[1])
    assert (done.returncode, done.stderr) == (0, "")
    second = copied_run.with_name("digits-2")
    assert done.stdout == (second / "report.json").read_text()
    assert report_of(second)["parameters_sha256"] == report_of(copied_run)["parameters_sha256"]
    assert (second / "model.onnx").read_bytes() == (copied_run / "model.onnx").read_bytes()


def test_a_finished_run_is_never_overwritten(command: Command, copied_run: Path) -> None:
    before = (copied_run / "model.onnx").read_bytes()
    done = command("fit", *SHORT, "--out", copied_run, cwd=copied_run.parents[1])
    assert done.returncode == 2
    assert "holds a run that has finished" in done.stderr
    assert (copied_run / "model.onnx").read_bytes() == before


def test_resume_goes_on_with_the_stored_recipe_and_budget(command: Command, copied_run: Path) -> None:
    done = command("fit", "--resume", "train.epochs=2", cwd=copied_run.parents[1])
    assert done.returncode == 0, done.stderr
    assert "resuming runs/digits" in done.stderr
    report = report_of(copied_run)
    assert (report["steps"], report["budget_bytes"]) == (14, 1_200_000)
    assert report["recipe"]["data"]["limit"] == 256
    assert [(session["after_step"], session["steps"]) for session in report["sessions"]] == [(0, 7), (7, 7)]
    assert report["energy"]["steps"] == 14


def test_resuming_a_finished_run_changes_nothing_and_says_how_to_go_on(command: Command, copied_run: Path) -> None:
    before = {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()}
    done = command("fit", "--resume", "--json", cwd=copied_run.parents[1])
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()} == before
    assert json.loads(done.stdout) == report_of(copied_run)
    assert "`runs/digits` has finished after 7 steps (finished); nothing was changed" in done.stderr
    assert "`edgetrain fit --resume --out runs/digits train.epochs=2`" in done.stderr


def test_resume_refuses_another_recipe(command: Command, copied_run: Path) -> None:
    done = command("fit", "fashion-mnist", "--resume", "--out", copied_run, cwd=copied_run.parents[1])
    assert done.returncode == 2
    assert "is a run of `digits`, not of `fashion-mnist`" in done.stderr


@pytest.mark.parametrize("length", [0, 10, 5000], ids=["empty", "in the header", "in the payload"])
def test_resume_from_a_truncated_checkpoint_is_refused(command: Command, copied_run: Path, length: int) -> None:
    path = copied_run / NEWEST
    path.write_bytes(path.read_bytes()[:length])
    done = command("fit", "--resume", "train.epochs=2", cwd=copied_run.parents[1])
    assert done.returncode == 5
    assert f"the checkpoint `runs/digits/{NEWEST}` cannot be used" in done.stderr
    assert "hint: restore the file from a copy, or start again without --resume" in done.stderr


def test_resume_falls_back_to_the_checkpoint_before(command: Command, copied_run: Path) -> None:
    shutil.copyfile(copied_run / NEWEST, copied_run / PREVIOUS)
    (copied_run / NEWEST).write_bytes(b"torn")
    done = command("fit", "--resume", "train.epochs=2", cwd=copied_run.parents[1])
    assert done.returncode == 0, done.stderr
    assert "warning: cannot use" in done.stderr
    assert report_of(copied_run)["steps"] == 14


def test_a_loss_that_is_no_number_exits_7_and_keeps_the_checkpoint(command: Command, copied_run: Path) -> None:
    # The first step of the second epoch still reads sound parameters; the step after it cannot.
    words = ("--resume", "train.epochs=3", "train.learning_rate=1e30", "train.schedule=constant")
    done = command("fit", *words, cwd=copied_run.parents[1])
    assert done.returncode == 7
    assert "the last good checkpoint is" in done.stderr
    assert read_header(copied_run / NEWEST).progress.step == 7
    again = command("fit", "--resume", "train.epochs=2", "train.learning_rate=0.005", cwd=copied_run.parents[1])
    assert again.returncode == 0, again.stderr


def test_parameters_that_the_last_update_ruined_are_not_saved(command: Command, tmp_path: Path) -> None:
    """Inputs this large have gradients above 1: the update overflows, and no loss is computed after it."""
    words = ("train.steps=1", "train.learning_rate=3e38", "train.schedule=constant", "train.warmup_steps=0")
    run = tmp_path / "run"
    done = command("fit", *SHORT, *words, "data.validation=0", "data.mean=[-1000]", "--out", run, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert "after the update of step 1 `" in done.stderr
    assert "holds NaN or infinity" in done.stderr
    assert not any((run / name).exists() for name in ("model.onnx", "report.json", NEWEST))


def test_what_a_killed_run_left_of_its_program_is_swept(command: Command, copied_run: Path) -> None:
    (copied_run / ".program-killed" / "content").mkdir(parents=True)
    done = command("fit", "--resume", "train.epochs=2", "-q", cwd=copied_run.parents[1])
    assert done.returncode == 0, done.stderr
    assert not list(copied_run.glob(".program-*"))


def test_another_target_runs_here_and_says_so(command: Command, tmp_path: Path) -> None:
    done = command("fit", *SHORT, "--target", "jetson", "--budget", "2GB", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the plan for jetson runs on this host; times are this host's" in done.stderr
    report = report_of(tmp_path / "runs" / "digits")
    assert (report["target"], report["ran_on"]) == ("jetson", "this host")


def test_too_small_a_budget_exits_3_and_the_named_one_works(command: Command, tmp_path: Path) -> None:
    refused = command("fit", *SHORT, "--budget", "1kB", cwd=tmp_path)
    assert refused.returncode == 3
    assert not (tmp_path / "runs").exists()
    named = refused.stderr.partition("`--budget ")[2].partition("`")[0]
    done = command("fit", *SHORT, "--budget", named, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert report_of(tmp_path / "runs" / "digits")["is_within_budget"]


def test_a_tight_budget_and_none_train_to_the_bits_of_keeping_everything(command: Command, tmp_path: Path) -> None:
    reports = {}
    for name, more in {
        "tight": ("--budget", f"{900_000 + BESIDE_BYTES}"),
        "usual": (),
        "whole": ("--solver", "keep-all"),
    }.items():
        done = command("fit", *SHORT, PLANNABLE, *more, "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        reports[name] = report_of(tmp_path / name)
    peaks = [reports[name]["planned_peak_bytes"] for name in ("tight", "usual", "whole")]
    assert peaks[0] < peaks[1] < peaks[2]
    assert len({report["parameters_sha256"] for report in reports.values()}) == 1


def test_a_budget_that_leaves_parameters_in_storage_trains_to_the_same_bits(
    command: Command, short_run: Path, tmp_path: Path
) -> None:
    done = command("fit", *SHORT, "--budget", "1MB", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    stored = tmp_path / "runs" / "digits"
    assert json.loads((stored / "program" / "plan.json").read_text())["stored"]
    report = report_of(stored)
    assert report["is_within_budget"]
    assert report["measured_peak_bytes"] < report["process_peak_bytes"] <= report["budget_bytes"]
    assert report["process_peak_bytes"] == pytest.approx(report["planned_process_bytes"], rel=0.1)
    assert report_of(stored)["parameters_sha256"] == report_of(short_run)["parameters_sha256"]
    assert (stored / "model.onnx").read_bytes() == (short_run / "model.onnx").read_bytes()
    evaluated = command("eval", stored, "--json", "-q", cwd=tmp_path)
    assert json.loads(evaluated.stdout)["accuracy"] == report_of(stored)["test_accuracy"]
    resumed = command("fit", "--resume", "train.epochs=2", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


def test_a_deadline_that_cannot_be_kept_exits_3(command: Command, tmp_path: Path) -> None:
    done = command("fit", *SHORT, "--deadline", "1us", cwd=tmp_path)
    assert done.returncode == 3
    assert "the deadline is" in done.stderr


def test_dump_holds_every_stage(command: Command, tmp_path: Path) -> None:
    done = command("fit", *SHORT, "--dump", "stages", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert names == ["1-graph.json", "2-costs.json", "3-plan.json", "4-program", "5-report.json"]


def test_a_users_own_model_trains_on_their_own_data(command: Command, mlp: Path, tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    x = rng.standard_normal((256, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x[:, :3].argmax(axis=1))
    words = (mlp.relative_to(tmp_path), "data.source=data.npz", "train.learning_rate=0.1")
    done = command("fit", *words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["losses"][-1] < 0.5 * report["losses"][0]
    assert report["evaluated_part"] == "validation"  # which chose the epoch, so nothing here is called a test
    assert report["validation_accuracy"] == max(v["metrics"]["accuracy"] for v in report["validations"])
    assert report["kept_epoch"] is not None
    assert report["kept_because"].startswith("the highest validation accuracy")
    resumed = command("fit", mlp, "--resume", "train.epochs=11", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming runs/mlp" in resumed.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = command("fit", "--resume", "--out", "../runs/mlp", "train.epochs=12", cwd=elsewhere)
    assert again.returncode == 0, again.stderr


def test_missing_data_exits_5(command: Command, mlp: Path, tmp_path: Path) -> None:
    done = command("fit", mlp, "data.source=nowhere.npz", cwd=tmp_path)
    assert done.returncode == 5
    assert "`nowhere.npz` is missing" in done.stderr


def test_a_broken_model_exits_5(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(bytes(range(256)) * 16)
    done = command("fit", "broken.onnx", "data.source=bundled:digits", cwd=tmp_path)
    assert done.returncode == 5
    assert "`broken.onnx` is not an ONNX model" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB: less than the program of a run."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") is not None and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("needs the right to mount a tmpfs (root)")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_exits_6(command: Command, small_disk: Path, tmp_path: Path) -> None:
    done = command("fit", *SHORT, "--out", small_disk / "run", cwd=tmp_path)
    assert done.returncode == 6, done.stderr
    assert "No space left on device" in done.stderr
    assert "hint: free space" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_cache_disk_exits_6(command: Command, small_disk: Path, tmp_path: Path) -> None:
    done = command("fit", *SHORT, cwd=tmp_path, environment={"XDG_CACHE_HOME": str(small_disk)})
    assert done.returncode == 6, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "seconds"), [((), None), (("--trial-time", "1min"), 60.0), (("--trial-time", "0s"), 0.0)]
)
def test_the_time_for_trials_is_what_the_flag_says(words: tuple[str, ...], seconds: float | None) -> None:
    job = Job(recipe=load_recipe("digits"), target=load_target("host"))
    assert with_trial_time(job, parse_arguments(VERB, ["digits", *words])).trials.seconds == seconds
