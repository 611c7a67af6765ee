"""Takes one step of a program for a GPU on made-up data, and prints the loss. Run in a process of its own.

python -m tests.edgetrain.opencl_step PROGRAM
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from edgetrain.graph.ir import FIRST_CORRECTION, LEARNING_RATE, LOSS, SECOND_CORRECTION
from edgetrain.program.artifact import load_artifact
from edgetrain.run.engines.engine import scalar
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.synthetic import fill_synthetic


def main(program: Path) -> None:
    artifact = load_artifact(program)
    with (
        tempfile.TemporaryDirectory() as pages,
        LocalEngine(artifact, threads=1, page_directory=Path(pages)) as engine,
    ):
        fill_synthetic(engine, artifact.graph, loss="cross-entropy", seed=0)
        for name, value in ((LEARNING_RATE, 0.001), (FIRST_CORRECTION, 0.1), (SECOND_CORRECTION, 0.001)):
            engine.tensor(name)[...] = value
        engine.call("step")
        print(scalar(engine.tensor(LOSS)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
