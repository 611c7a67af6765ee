"""How far ten steps of a compiled program are from PyTorch in float64: losses, every parameter, every update.

    python -m benchmarks.agreement [--json FILE]

Differences are relative to the largest magnitude in the tensor; an update's counts beyond what rounding the stored
value once a step explains, so 0 means: nothing but rounding. The same table holds float32 PyTorch's own distance from
float64: what rounding alone does to this training.
Needs `pip install torch==2.13.0`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import show_table, write_json
from edgetrain.graph.options import TrainOptions
from tests.edgetrain.agreement import onnx_models as models
from tests.edgetrain.agreement import torch_reference
from tests.edgetrain.agreement.test_against_torch import CASES, Case
from tests.edgetrain.agreement.trained import Differences, differences, make_batches
from tests.edgetrain.agreement.workshop import Workshop


def compare(name: str, case: Case, workshop: Workshop, seed: int) -> dict[str, object]:
    """One model's row; the seed decides data and labels."""
    options = TrainOptions(
        batch=case.batch, loss=case.loss, optimizer=case.optimizer, batchnorm=case.batchnorm, clip_norm=case.clip_norm
    )
    model, rate = case.model(), case.learning_rate
    batches = make_batches(case.image, models.CLASSES, loss=case.loss, size=case.batch, seed=seed)
    expected = torch_reference.train_in_torch(model, batches, options, learning_rate=rate)
    ours = differences(workshop.train_model(model, batches, options, learning_rate=rate), expected)
    rounded = torch_reference.train_in_torch(model, batches, options, learning_rate=rate, dtype="float32")
    torchs = differences(rounded, expected)
    return {"model": name, "seed": seed, "n": len(batches), **_fields("", ours), **_fields("torch_float32_", torchs)}


def _fields(prefix: str, apart: Differences) -> dict[str, float]:
    return {f"{prefix}loss": apart.loss, f"{prefix}value": apart.value, f"{prefix}update": apart.update}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=3, help="how many sets of data (default: %(default)s)")
    options = parser.parse_args(arguments)
    if torch_reference.IS_MISSING:
        print(f"this benchmark compares with PyTorch: {torch_reference.INSTALL}", file=sys.stderr)
        return 2
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(root=Path(folder))
        (workshop.root / "run").mkdir()
        for name, case in CASES.items():
            rows += [compare(name, case, workshop, seed) for seed in range(options.seeds)]
    columns = ("model", "seed", "loss", "value", "update")
    show_table(rows, (*columns, "torch_float32_loss", "torch_float32_value", "torch_float32_update"))
    if options.json:
        write_json(options.json, "agreement", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
