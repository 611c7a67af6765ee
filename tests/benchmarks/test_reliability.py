"""The page on reliability: every test that it names is there, and no failure is lost on the way to it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.campaigns.command_lines import mutated
from benchmarks.campaigns.ground import Result
from benchmarks.measure import machine
from benchmarks.reliability import CAMPAIGNS, ROOT, cases_of
from benchmarks.reliability_claims import CLAIMS, DEFECTS
from benchmarks.reliability_page import Case, Page, matches, page

_POINTS = '<properties><property name="fault_points" value="12"/></properties>'
JUNIT = f"""<testsuites><testsuite>
<testcase classname="tests.a.test_one" name="test_x[1]">{_POINTS}</testcase>
<testcase classname="tests.a.test_one" name="test_x[2]"><failure message="no"/></testcase>
<testcase classname="tests.a.test_one.TestClass" name="test_y"><skipped/></testcase>
<testcase classname="tests.a.test_onefold" name="test_z"/>
</testsuite></testsuites>"""
SOAK = {
    "rows": [
        {"run": "plain", "runs": 3, "SIGKILL": 7, "wrong": 0},
        {"run": "all", "runs": 3, "SIGKILL": 7, "wrong": 0, "seconds": 3600.0, "seed": 4, "disk_pressure": "a tmpfs"}
        | {"violations": []},
        {
            "run": "by itself",
            "steps": 700_000,
            "seconds": 900.0,
            "descriptors": [7, 7],
            "resident_bytes": [80_000_000] * 2,
        }
        | {"steps_per_s": [900.0, 890.0], "steps_per_cpu_s": [4000.0, 4001.0], "checkpoint_bytes": [79_980, 80_010]}
        | {"log_bytes_per_step": 121.4, "switches": 0, "wrong": 0},
    ]
}


def written(**more: object) -> str:
    given: dict[str, object] = {
        "cases": cases_of(JUNIT),
        "results": {},
        "commit": "0123456789ab",
        "day": "2026-11-19",
        "machine": machine(),
        "command": "python -m benchmarks.reliability",
        "seconds": 60.0,
    }
    return page(Page(**(given | more)))  # type: ignore[arg-type]


def cells(text: str, row: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("|") and row in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_defect_of_the_list_has_a_row_with_tests() -> None:
    assert len(DEFECTS) == 15
    assert all(claim.tests for claim in CLAIMS)
    assert {name for claim in CLAIMS for name in claim.campaigns} == set(CAMPAIGNS)


@pytest.mark.slow
def test_every_test_that_a_claim_names_is_there() -> None:
    """But for folders that come with other work, which may not be there yet."""
    named = sorted({test for claim in CLAIMS for test in claim.tests})
    present = [test for test in named if test.endswith(".py") or "::" in test or (ROOT / test).is_dir()]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", *present]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "ERROR" not in done.stdout


def test_a_name_is_a_file_a_folder_or_one_test_and_nothing_that_begins_like_it() -> None:
    one, two, within, other = cases_of(JUNIT)
    for test in ("tests/a/test_one.py", "tests/a", "tests/a/test_one.py::test_x"):
        assert matches(test, one)
        assert matches(test, two)
    assert matches("tests/a/test_one.py", within)
    assert not matches("tests/a/test_one.py::test_x", within)
    assert not matches("tests/a/test_one.py", other)


def test_what_a_junit_file_says_is_counted() -> None:
    assert [case.outcome for case in cases_of(JUNIT)] == ["passed", "failed", "skipped", "passed"]
    assert [case.points for case in cases_of(JUNIT)] == [12, 0, 0, 0]


def test_tests_tries_and_failures_of_a_claim_are_in_its_row() -> None:
    claim = DEFECTS[0]
    module = claim.tests[0].removesuffix(".py").replace("/", ".")
    cases = [
        Case(module=module, name="test_a[0]", outcome="passed", points=40),
        Case(module=module, name="test_a[1]", outcome="passed", points=2),
        Case(module=module, name="test_b", outcome="failed"),
    ]
    results = {claim.campaigns[0]: Result(tries=12, wrong=("it broke",), detail="12 of a kind")}
    text = written(cases=cases, results=results)
    assert cells(text, claim.holds)[3:] == ["2", "42", "12", "**2**"]
    assert cells(text, "12 of a kind")[1:3] == ["12", "**1**"]
    assert "it broke" in text
    assert cells(text, DEFECTS[1].holds)[3] == "not run"


def test_soak_and_fuzzing_are_there_where_they_are_given() -> None:
    assert "## Soak" not in written()
    assert "## Fuzzing" not in written()
    text = written(
        soak=SOAK, fuzz={"seconds": 3600, "readers": [{"reader": "npz", "executions": 1_000_000}], "more": 1}
    )
    assert "1.00 hours, seed 4" in text
    assert cells(text, "by itself")[1:5] == ["700,000", "900", "7 → 7", "80.0 MB → 80.0 MB"]
    assert cells(text, "npz") == ["npz", "1,000,000", "–", "–"]


@pytest.mark.parametrize("fuzz", [{}, {"readers": []}, []])
def test_a_fuzzing_file_that_says_nothing_adds_nothing(fuzz: object) -> None:
    assert "## Fuzzing" not in written(fuzz=fuzz)


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_the_same_command_lines_which_a_process_can_be_started_with(seed: int) -> None:
    lines = [mutated(random.Random(f"{seed}/{number}")) for number in range(200)]
    assert lines == [mutated(random.Random(f"{seed}/{number}")) for number in range(200)]
    assert len(set(lines)) > 150
    assert not any("\0" in word for words in lines for word in words)


@pytest.mark.compile
def test_campaigns_bring_what_they_tried(tmp_path: Path) -> None:
    """Those that take seconds; the page is written, and the exit code says that all held."""
    out = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.reliability", "--quick", "--no-tests", "--write", str(out)]
    command += ["--only", "bits of a checkpoint", "--only", "bits of run files", "--only", "links"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert int(cells(text, "bits of the header")[1].replace(",", "")) > 1000
    assert cells(text, "3 names")[2] == "0"
