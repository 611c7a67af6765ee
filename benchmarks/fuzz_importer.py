"""Imports thousands of broken ONNX files: each must be imported or refused with a documented error.

    python -m benchmarks.fuzz_importer --count 5000 [--first 0]

Each process imports a few hundred files. If native code crashes, the process ends, and the file is found and named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_CHUNK = 250
_TIMEOUT_S = 600


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _run_chunk(options.first, options.count)
        return
    outcomes: Counter[str] = Counter()
    bugs: list[str] = []
    for first in range(options.first, options.first + options.count, _CHUNK):
        count = min(_CHUNK, options.first + options.count - first)
        for line in _run_in_child(first, count):
            number, _, outcome = line.partition(" ")
            outcomes[outcome.split(":")[0]] += 1
            bugs += [f"{number}: {outcome}"] if outcome.startswith("BUG") else []
        print(f"{sum(outcomes.values())} files: {dict(sorted(outcomes.items()))}", file=sys.stderr, flush=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:6} {outcome}")
    print("\n".join(bugs) or "no undocumented error")
    sys.exit(1 if bugs else 0)


def _run_in_child(first: int, count: int) -> list[str]:
    """A line a file; a file that ends the process is a bug, and the rest of its chunk goes on in a new one."""
    lines: list[str] = []
    while len(lines) < count:
        here = first + len(lines)
        command = [sys.executable, "-m", "benchmarks.fuzz_importer", "--child"]
        command += ["--first", str(here), "--count", str(first + count - here)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
            written, end = done.stdout, f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
        except subprocess.TimeoutExpired as error:
            written, end = (error.stdout or b"").decode(), f"took more than {_TIMEOUT_S} s"
        lines += written.splitlines()
        if len(lines) < count:
            lines.append(f"{first + len(lines)} BUG process ended: {end}")
    return lines


def _run_chunk(first: int, count: int) -> None:
    from benchmarks.importing.fuzzing import outcome_of

    with tempfile.TemporaryDirectory(prefix="edgetrain-fuzz-") as folder:
        for number in range(first, first + count):
            print(number, outcome_of(number, Path(folder)).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
