"""Trains programs of the tiny graph one after the other in one engine: `python -m ... FOLDER...`, as in `PLANS`.

Prints which sanitizer is in the process. Ends with an error where a step does not give NumPy's bits.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from edgetrain.program.artifact import Artifact, load_artifact
from edgetrain.run.engines.local import LocalEngine
from tests.edgetrain.program.tiny_program import initial_values, reference_step, some_input

PLANS = ("keep", "page", "page unaligned", "store", "page")
_STEPS = 3


def _train(programs: list[Artifact], page_directory: Path) -> None:
    weights = initial_values()["w"].astype(np.float32)
    largest = max(program.manifest.arena_bytes for program in programs)
    with LocalEngine(programs[0], threads=3, page_directory=page_directory, reserve_bytes=largest) as engine:
        for program in programs:
            engine.switch(program)
            for _ in range(_STEPS):
                engine.tensor("x")[...] = some_input()
                _, weights = reference_step(weights, some_input())
                engine.call("step")
                assert engine.tensor("w").tobytes() == weights.tobytes()


if __name__ == "__main__":
    print(*sorted({line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libasan" in line}))
    with tempfile.TemporaryDirectory() as folder:
        _train([load_artifact(Path(argument)) for argument in sys.argv[1:]], Path(folder))
