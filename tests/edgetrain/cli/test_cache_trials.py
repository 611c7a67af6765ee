"""`edgetrain cache verify --run`: what holds on this machine, what does not, and what was not covered."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from edgetrain.cli.cache_trials import verification_text
from edgetrain.cli.entry import main
from edgetrain.compiler.search.trials import TriedSchedule
from edgetrain.errors import DeviceError
from edgetrain.files.build_cache import BuildCache
from edgetrain.locate import schedules_path
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.targets.profile import load_target
from edgetrain.tuning.verify import Verification, verify_schedules
from edgetrain_tuner.cache.schedules import RuleSchedule
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.measure.outcome import Outcome
from tests.edgetrain.cli.test_entry import assert_golden
from tests.edgetrain.tuning.test_tune import slow_entry
from tests.edgetrain_tuner.cache.entries import entry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _tried(number: int, **outcome: object) -> TriedSchedule:
    return TriedSchedule(
        kernel=f"contraction SSR 384x512x{number}",
        entry=f"{number:064d}"[::-1],
        level="team",
        claimed=2.0,
        outcome=Outcome(**outcome),  # type: ignore[arg-type]
    )


VERIFICATION = Verification(
    model="digits",
    tried=(
        _tried(1, status="measured", seconds=1.0, default_seconds=1.5),
        _tried(2, status="measured", seconds=1.0, default_seconds=0.4),
        _tried(3, status="wrong", message="differs by 5.0e-01 of the largest element"),
        _tried(4, status="timed out", message="no answer in 10 s or 20 s"),
    ),
    uncovered=29,
    unpromising=7,
)


def test_a_verification_reads_as_reviewed() -> None:
    assert_golden("cache-verify-run.txt", verification_text(VERIFICATION))


def test_slower_is_no_fault_and_wrong_failing_or_unmeasured_is() -> None:
    measured = dataclasses.replace(VERIFICATION, tried=VERIFICATION.tried[:2])
    assert measured.is_good
    assert not VERIFICATION.is_good
    assert not dataclasses.replace(measured, unmeasured={"contraction": "no memory"}).is_good
    assert verification_text(Verification(model="m", tried=(), uncovered=0, unpromising=0)) == (
        "0 tried on the kernels of m\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "digits"), "there is no --run"),
        (("train.batch=8",), "there is no --run"),
        (("--run", "digits"), "--model digits"),
        (("--run", "--store", "other.sqlite"), "do not go together"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_mistakes_end_with_code_2(
    home: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "verify", *words]) == 2
    assert said in capsys.readouterr().err


def test_what_is_for_another_target_cannot_be_tried_here(build_cache: BuildCache) -> None:
    job = Job(recipe=load_recipe("digits"), target=load_target("cortex-m7"), cache=build_cache)
    with pytest.raises(DeviceError, match="cannot be tried here"):
        verify_schedules(job)


@pytest.mark.compile
def test_entries_are_tried_on_a_recipe_s_kernels_and_the_rest_is_counted(
    home: Path, build_cache: BuildCache, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(recipe=load_recipe("digits", ("train.batch=8",)), target=load_target("host"), cache=build_cache)
    slow = slow_entry(job)
    unfit = dataclasses.replace(slow, schedule=RuleSchedule(rule="packed-product", parameters={"rows": (99,)}))
    elsewhere, poor = entry(1), entry(2, outcome="slower")
    with Store.open(schedules_path()) as store:
        store.put_all([slow, unfit, elsewhere, poor])
    assert job.stores is not None
    with job.stores.opened() as levels:
        total = len(list(levels))
    assert main(["cache", "verify", "--run", "--model", "digits", "train.batch=8", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == []
    trials = report["trials"]
    verdicts = {one["id"]: one["verdict"] for one in trials["tried"]}
    assert (verdicts[slow.id], verdicts[unfit.id]) == ("slower", "fails")
    assert not verdicts.keys() & {elsewhere.id, poor.id}
    assert trials["uncovered"] >= 1
    assert trials["unpromising"] >= 1
    assert len(verdicts) + trials["uncovered"] + trials["unpromising"] == total
    with Store.open(schedules_path()) as store:
        assert len([e for e in store if e.workload == slow.workload]) == 4, "what was learned is kept"
