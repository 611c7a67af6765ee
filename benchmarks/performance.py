"""Measures steps, kernels and start-up against all peers, and writes the page that shows them.

    python -m benchmarks.performance [--python-of ort=PYTHON] [--results DIR] [--rounds 15]
    python -m benchmarks.performance --results DIR --only-write

Runs `benchmarks.step`, `kernels` and `start` one after the other. `--results` keeps their results in a folder, and
`--only-write` writes the page from that folder without measuring. It lists
whatever is missing before it measures. Run nothing else on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.needs import missing_peers, missing_torch, missing_weights, require
from benchmarks.performance_page import Reasons, page
from benchmarks.step import PEERS, interpreters
from benchmarks.step_models import SUBJECTS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BENCHMARKS = ("step", "kernels", "start")

# Why a peer is faster, by a pattern over `MODEL:BATCH PEER` or `KERNEL SHAPE`; the first pattern that matches counts.
# A reason was measured, or follows from the shape. Without one the page says that the row is not explained yet.
_SHORT_ROWS = "a row of 7 results fills less than half of a vector register of 16"
REASONS: Reasons = (
    ("gelu *", "PyTorch uses a cheaper formula, which is less exact below -2"),
    ("convolution * 4x512x7² *", "Winograd's tiles of 2 x 2 compute 8 x 8 results for a map of 7 x 7"),
    ("depthwise forward 8x672x14² *", _SHORT_ROWS),
    ("depthwise * 8x1152x7² *", _SHORT_ROWS),
    ("depthwise * 8x960x7² *", _SHORT_ROWS),
)


def measure(results: Path, *, rounds: int, pythons: Sequence[str]) -> None:
    """Runs the benchmarks, each in a process of its own, and leaves a document of each in `results`."""
    options: Mapping[str, Sequence[str]] = {
        "step": ("--against", "all", "--rounds", str(rounds), *(f"--python-of={pair}" for pair in pythons)),
        "kernels": ("--rounds", str(rounds)),
        "start": (),
    }
    for name in BENCHMARKS:
        command = ["-m", f"benchmarks.{name}", *options[name], "--json", str(results / f"{name}.json")]
        print(" ".join(command), file=sys.stderr)
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the benchmarks' documents are kept")
    parser.add_argument("--only-write", action="store_true", help="the page of what is in --results")
    parser.add_argument("--python-of", action="append", default=[], metavar="PEER=PYTHON")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    if options.only_write and options.results is None:
        parser.error("--only-write needs --results DIR")
    with tempfile.TemporaryDirectory() as scratch:
        results = options.results or Path(scratch)
        results.mkdir(parents=True, exist_ok=True)
        if not options.only_write:
            pythons = interpreters(options.python_of)
            require([*missing_weights(SUBJECTS), *missing_peers(PEERS, pythons), *missing_torch()])
            measure(results, rounds=options.rounds, pythons=options.python_of)
        documents = {name: json.loads((results / f"{name}.json").read_text("utf-8")) for name in BENCHMARKS}
    options.output.write_text(page(documents, REASONS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
