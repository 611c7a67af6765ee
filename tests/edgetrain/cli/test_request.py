from __future__ import annotations

import argparse
import dataclasses

import pytest

from edgetrain.cli.console import Console
from edgetrain.cli.fit import record_of
from edgetrain.cli.request import energy_share, job_of, split_words
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity, parse_intensity
from edgetrain.errors import UsageError
from edgetrain.recipes import Recipe, load_recipe
from edgetrain.run.files.folders import JobRecord
from edgetrain.units import Bytes


@pytest.mark.parametrize(
    ("words", "source", "overrides"),
    [
        ([], None, ()),
        (["digits"], "digits", ()),
        (["train.batch=4", "digits", "metric=mse"], "digits", ("train.batch=4", "metric=mse")),
        (["runs/lr=3/model.onnx"], "runs/lr=3/model.onnx", ()),
        (["data.source=a=b"], None, ("data.source=a=b",)),
    ],
)
def test_words_are_one_source_and_overrides(words: list[str], source: str | None, overrides: tuple[str, ...]) -> None:
    assert split_words(words) == (source, overrides)


def test_a_stored_recipe_takes_overrides() -> None:
    recipe = load_recipe("digits", ["data.limit=256"])
    again = Recipe.from_json(recipe.to_json(), ["train.epochs=3"])
    assert (again.data.limit, again.train.epochs) == (256, 3)
    assert Recipe.from_json(recipe.to_json()) == recipe


STORED = JobRecord(target="jetson", solver="keep-all", memory_bytes=5_000_000, deadline_s=0.5, energy_j=2.0, threads=1)


def job_flags(**given: object) -> argparse.Namespace:
    names = ("target", "solver", "budget", "deadline", "energy", "threads")
    return argparse.Namespace(**{**dict.fromkeys(names), **given})


def test_what_no_flag_says_is_as_stored() -> None:
    job = job_of(job_flags(), load_recipe("digits"), Console(quiet=True), stored=STORED)
    assert (job.target.name, job.solver, job.threads) == ("jetson", "keep-all", 1)
    assert (job.budget.memory_bytes, job.budget.deadline_s, job.budget.energy_j) == (5_000_000, 0.5, 2.0)


def test_the_intensity_of_electricity_is_given_stored_or_the_worlds_average() -> None:
    def intensity(given: CarbonIntensity | None, stored: JobRecord | None) -> float:
        flags = job_flags(co2=given)
        return job_of(flags, load_recipe("digits"), Console(quiet=True), stored=stored).carbon.g_per_kwh

    kept = dataclasses.replace(STORED, co2_g_per_kwh=56.0)
    assert intensity(None, None) == intensity(None, STORED) == WORLD_AVERAGE.g_per_kwh
    assert intensity(None, kept) == 56.0
    assert intensity(parse_intensity("12"), kept) == 12.0


def test_a_flag_goes_before_what_is_stored() -> None:
    flags = job_flags(budget=Bytes(7), target="host")
    job = job_of(flags, load_recipe("digits"), Console(quiet=True), stored=STORED)
    assert (job.target.name, job.budget.memory_bytes, job.solver) == ("host", 7, "keep-all")


def test_what_planning_is_asked_for_is_kept_for_the_next_time() -> None:
    flags = job_flags(minimize=1.0, wear=Bytes(4096), nodes=7, mip_solver="cbc")
    job = job_of(flags, load_recipe("digits"), Console(quiet=True))
    assert (job.planning.energy_share, job.planning.nodes, job.planning.mip_solver) == (1.0, 7, "cbc")
    assert job.planning.time_limit_s > 3600, "the clock must not end a search that counts nodes"
    resumed = job_of(job_flags(), load_recipe("digits"), Console(quiet=True), stored=record_of(job, target="host"))
    assert (resumed.planning, resumed.budget) == (job.planning, job.budget)


def test_planning_is_for_time_and_takes_30_s_where_nothing_is_said() -> None:
    planning = job_of(job_flags(), load_recipe("digits"), Console(quiet=True)).planning
    assert (planning.energy_share, planning.time_limit_s, planning.nodes, planning.mip_solver) == (
        *(0.0, 30.0),
        *(None, "highs"),
    )


@pytest.mark.parametrize(("text", "share"), [("time", 0.0), ("energy", 1.0), ("0.3", 0.3), ("0", 0.0), ("1", 1.0)])
def test_what_is_minimised_is_time_energy_or_a_mix(text: str, share: float) -> None:
    assert energy_share(text) == share


@pytest.mark.parametrize("text", ["", "joules", "-0.1", "1.5", "nan"])
def test_nothing_else_can_be_minimised(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be minimised"):
        energy_share(text)


def test_limits_are_echoed(capsys: pytest.CaptureFixture[str]) -> None:
    flags = job_flags(budget=Bytes(2 * 10**9), deadline=0.05, energy=1.0, wear=Bytes(10**6))
    job_of(flags, load_recipe("digits"), Console())
    assert capsys.readouterr().err == (
        "digits on host, budget 2GB (1.863GiB), deadline 50.0 ms a step, energy 1 J a step, 1MB written a step\n"
    )
