"""Fuzzes the readers of files with coverage: each must read an input or refuse it with a documented error.

    python -m tests.fuzz all --seconds 600
    python -m tests.fuzz npz wav --seconds 60 --seed 7 --json report.json

Needs atheris (`pip install atheris`). Each reader runs in a process of its own. What breaks the rule is left in
`--findings` as a file: put it into `tests/fuzz/found/READER/`, which makes it a test, and repair the reader.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.harness import reader_names
from tests.fuzz.one_reader import Limits, Outcome, fuzz_reader

_COLUMNS = (
    ("reader", 18),
    ("executions", 11),
    ("features", 9),
    ("blocks", 7),
    ("corpus", 7),
    ("seconds", 8),
    ("findings", 9),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 without a finding, 1 with one, 2 where atheris is missing or a name is unknown."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("readers", nargs="+", metavar="READER", help=f"all, or of: {', '.join(reader_names())}")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all of them together: 60 without it")
    parser.add_argument("--runs", type=int, help="inputs for each reader at most, where that is sooner")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations: equal seeds begin alike")
    parser.add_argument(
        "--corpus", type=Path, help="keep what reaches new code there, a folder a reader, and begin with it"
    )
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="where inputs that fail are left")
    parser.add_argument("--json", type=Path, help="write the table there, too")
    parser.add_argument("--timeout", type=int, default=20, help="seconds that one input may take: 20 without it")
    parser.add_argument("--growth-mb", type=int, default=1024, help="MB that the process may grow by: 1024 without it")
    options = parser.parse_args(arguments)
    names = reader_names() if "all" in options.readers else tuple(options.readers)
    unknown = sorted(set(names) - set(reader_names()))
    if unknown:
        parser.error(f"there is no reader {', '.join(unknown)}; there are {', '.join(reader_names())}")
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed: pip install atheris")
    limits = Limits(
        seconds=options.seconds / len(names),
        timeout_s=options.timeout,
        growth_mb=options.growth_mb,
        seed=options.seed,
        runs=options.runs,
    )
    outcomes: list[Outcome] = []
    print("".join(f"{name:>{width}}" if width < 18 else f"{name:<{width}}" for name, width in _COLUMNS), flush=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="edgetrain-fuzz-") as folder:
            corpus = options.corpus / name if options.corpus else Path(folder)
            outcome = fuzz_reader(name, limits, corpus=corpus, findings=options.findings / name)
        outcomes.append(outcome)
        print(_row(outcome), flush=True)
    for outcome in outcomes:
        for finding in outcome.findings:
            print(f"\n{outcome.reader}: {finding.path}\n  {finding.what}", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps([asdict(o) for o in outcomes], indent=1, default=str) + "\n", encoding="utf-8"
        )
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def _row(outcome: Outcome) -> str:
    cells = (
        outcome.reader,
        outcome.executions,
        outcome.features,
        outcome.blocks,
        outcome.corpus,
        round(outcome.seconds),
        len(outcome.findings),
    )
    return "".join(
        f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, (_, w)) in enumerate(zip(cells, _COLUMNS, strict=True))
    )


if __name__ == "__main__":
    sys.exit(main())
