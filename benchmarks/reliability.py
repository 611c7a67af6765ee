"""Tries again all that once failed, and all that is promised, and writes what came of it as a page.

    python -m benchmarks.reliability [--quick] [--write docs/reliability.md] [--soak OUT.json] [--fuzz OUT.json]

Runs the tests of each claim (`reliability_claims.py`), and campaigns that try something of their own hundreds of times:
damage, kills, full disks, memory, command lines, strangers at the cache server. `--soak` and `--fuzz` add what
`benchmarks.soak --json` and the fuzzing of the readers wrote. Exit code 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.campaigns.command_lines import command_lines
from benchmarks.campaigns.damage import checkpoint_bits, run_file_bits
from benchmarks.campaigns.ground import Ground, Result
from benchmarks.campaigns.kills import kills
from benchmarks.campaigns.pairs import memory_pairs
from benchmarks.campaigns.refused import at_once, links, resumes
from benchmarks.campaigns.strangers import server_attacks
from benchmarks.measure import machine
from benchmarks.reliability_claims import CLAIMS
from benchmarks.reliability_page import Case, Page, page

ROOT = Path(__file__).parents[1]
CAMPAIGNS: Mapping[str, Callable[[Ground], Result]] = {
    "bits of a checkpoint": checkpoint_bits,
    "bits of run files": run_file_bits,
    "refused resumes": resumes,
    "two at once": at_once,
    "links": links,
    "strangers at the server": server_attacks,
    "command lines": command_lines,
    "memory": memory_pairs,
    "kills and full disks": kills,
}
_FAULT_POINTS = "fault_points"  # what a test records: at how many places it made something fail


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    began = time.monotonic()
    cases = () if options.no_tests else run_tests(quick=options.quick)
    results = run_campaigns(options.only or list(CAMPAIGNS), quick=options.quick, seed=options.seed)
    written = Page(
        cases=cases,
        results=results,
        commit=_commit(),
        day=datetime.now(UTC).date().isoformat(),
        machine=machine() | {"memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")},
        command=_command(options),
        seconds=time.monotonic() - began,
        soak=_read(options.soak),
        fuzz=_read(options.fuzz),
    )
    text = page(written)
    if options.write is None:
        print(text)
    else:
        options.write.write_text(text, encoding="utf-8")
    wrong = [f"{name}: {line}" for name, result in results.items() for line in result.wrong]
    wrong += [f"{case.module}::{case.name} failed" for case in cases if case.outcome == "failed"]
    print("\n".join(wrong) or "everything held", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tries, and no tests that compile: three minutes")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page; on standard output without it")
    parser.add_argument("--soak", type=Path, metavar="JSON", help="what `benchmarks.soak --json` wrote")
    parser.add_argument("--fuzz", type=Path, metavar="JSON", help="what the fuzzing of the readers wrote")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=CAMPAIGNS, help="this campaign; can be given again")
    parser.add_argument("--no-tests", action="store_true", help="campaigns alone")
    return parser.parse_args(arguments)


def _command(options: argparse.Namespace) -> str:
    """What gives the same page again, but for where it goes."""
    flags = [*(["--quick"] if options.quick else []), *(["--no-tests"] if options.no_tests else [])]
    chosen = [word for name in options.only or () for word in ("--only", name)]
    return shlex.join(["python", "-m", "benchmarks.reliability", *flags, *chosen])


def run_tests(*, quick: bool) -> tuple[Case, ...]:
    """Every test that a claim names, once."""
    named = sorted({test for claim in CLAIMS for test in claim.tests if (ROOT / test.partition("::")[0]).exists()})
    with tempfile.TemporaryDirectory(prefix="edgetrain-reliability-") as folder:
        results = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}"]
        command += ["-n", str(len(os.sched_getaffinity(0))), "--dist", "worksteal"]
        command += ["-m", "not compile and not slow"] if quick else []
        _say(f"tests of {len(CLAIMS)} claims")
        done = subprocess.run([*command, *named], cwd=ROOT, stdout=sys.stderr, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"pytest ended with {done.returncode}")
        return cases_of(results.read_text())


def cases_of(junit: str) -> tuple[Case, ...]:
    """What a JUnit file says of each test."""
    found = []
    for element in ElementTree.fromstring(junit).iter("testcase"):
        kinds = {child.tag for child in element}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        points = [
            int(float(p.get("value", "0"))) for p in element.iter("property") if p.get("name") == _FAULT_POINTS
        ]  # fmt: skip
        case = Case(
            module=element.get("classname", ""), name=element.get("name", ""), outcome=outcome, points=sum(points)
        )
        found.append(case)
    return tuple(found)


def run_campaigns(names: Sequence[str], *, quick: bool, seed: int) -> dict[str, Result]:
    results = {}
    with tempfile.TemporaryDirectory(prefix="edgetrain-reliability-", ignore_cleanup_errors=True) as folder:
        ground = Ground(folder=Path(folder), seed=seed, quick=quick)
        for name in names:
            began = time.monotonic()
            results[name] = CAMPAIGNS[name](ground)
            wrong = results[name].wrong
            _say(f"{name}: {results[name].tries} tries, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
            for line in wrong:
                _say(f"WRONG {line}")
    return results


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return (
        f"{git('rev-parse', '--short=12', 'HEAD') or 'unknown'}{' with changes' if git('status', '-s', '-uno') else ''}"
    )


def _read(path: Path | None) -> Any:
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
