from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgetrain.targets.profile import load_target
from edgetrain.units import show_bytes
from tests.edgetrain.cli.conftest import PLANNABLE, Command
from tests.edgetrain.cli.live_runs import BESIDE_BYTES

pytestmark = pytest.mark.compile


def test_plan_says_who_holds_the_memory(command: Command, tmp_path: Path) -> None:
    done = command("plan", "digits", "--budget", "1200kB", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fits: peak ")
    for word in ("parameters", "activations", "recomputed: 0 runs", "paged: 0 tensors", "one step: "):
        assert word in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_tight_plan_recomputes_and_says_what_it_costs(command: Command, tmp_path: Path) -> None:
    roomy, tight = (
        json.loads(command("plan", "digits", PLANNABLE, "--json", "--budget", budget, cwd=tmp_path).stdout)
        for budget in ("2MB", f"{930_000 + BESIDE_BYTES}")
    )
    assert tight["peak_bytes"] <= 930_000 < roomy["peak_bytes"]
    assert tight["recomputed"]
    assert tight["slowdown"] > roomy["slowdown"] == 1


def test_plan_compiles_no_kernels(command: Command, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = command("plan", "digits", cwd=tmp_path, environment={"XDG_CACHE_HOME": str(cache)})
    assert done.returncode == 0, done.stderr
    assert "compiling" not in done.stderr
    assert [path.name for path in cache.rglob("graph.json")] == ["graph.json"]
    assert not list(cache.rglob("*.o"))


def test_a_microcontroller_is_its_own_budget(command: Command, mlp: Path, tmp_path: Path) -> None:
    """A small model in large batches; its head alone, for which no sparser update has to be looked for."""
    words = ("plan", mlp, "train.loss=mse", "train.batch=8192", "update.mode=head", "--target", "cortex-m4", "--json")
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"] == "PlanInfeasibleError"
    assert f"no plan fits {show_bytes(load_target('cortex-m4').device.memory_bytes)}" in done.stderr


def test_keep_all_never_recomputes_and_so_fails_sooner(command: Command, tmp_path: Path) -> None:
    done = command("plan", "digits", "--solver", "keep-all", "--budget", "700kB", cwd=tmp_path)
    assert done.returncode == 3


def test_a_model_needs_no_data_to_be_planned(command: Command, mlp: Path, tmp_path: Path) -> None:
    done = command("plan", mlp, "train.loss=mse", "--dump", "stages", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "stages").iterdir()) == [
        "1-graph.json",
        "2-costs.json",
        "3-plan.json",
    ]


def test_plan_draws_itself_and_sweeps_the_budget(command: Command, tmp_path: Path) -> None:
    words = ("plan", "digits", "--budget", "1200kB", "--sweep", "--html", "plan.html", "--png", "plan.png", "--json")
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    budgets = [point["budget_bytes"] for point in found["sweep"]]
    assert budgets == sorted(budgets)
    assert budgets[-1] == found["keep_all_bytes"] + found["beside_bytes"]
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert {"timeline-points", "sweep-time-points", "sweep-energy-points"} <= set(re.findall(r'id="([^"]+)"', page))
    assert "budget 1.2MB" in page
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_in_a_folder_that_is_not_there_is_refused_before_anything_is_planned(
    command: Command, tmp_path: Path
) -> None:
    done = command("plan", "digits", "--png", "no/plan.png", cwd=tmp_path)
    assert done.returncode == 2
    assert "no folder `no`" in done.stderr
    assert "importing" not in done.stderr


def test_where_nothing_fits_each_way_out_can_be_added_to_the_command(command: Command, tmp_path: Path) -> None:
    words = ("plan", "digits", "--budget", "600kB", "--json")
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 3
    ways = json.loads(done.stdout)["ways_out"]
    assert [way["kind"] for way in ways] == ["budget", "batch", "update"]
    advised = [way for way in ways if way["flags"]]
    assert any(way["kind"] == "batch" for way in advised)
    for way in advised:
        assert f"{way['text']}: `{way['flags']}`" in done.stderr
        again = command(*words, *way["flags"].split(), cwd=tmp_path)
        assert again.returncode == 0, again.stderr


def test_a_calibrated_plan_is_made_of_measured_times(command: Command, tmp_path: Path) -> None:
    words = ("plan", "digits", "--json")
    modelled, measured = (json.loads(command(*words, *more, cwd=tmp_path).stdout) for more in ((), ("--calibrate",)))
    assert (modelled["is_timed"], measured["is_timed"]) == (False, True)
    assert measured["seconds"] > 0
    assert measured["seconds"] != modelled["seconds"]
    assert measured["joules"] == modelled["joules"]


def test_another_devices_kernels_are_not_measured_here(command: Command, tmp_path: Path) -> None:
    done = command("plan", "digits", "train.batch=4", "--target", "jetson", "--calibrate", cwd=tmp_path)
    assert done.returncode == 2
    assert "kernels for jetson cannot be measured here" in done.stderr
    assert "compiling" not in done.stderr
