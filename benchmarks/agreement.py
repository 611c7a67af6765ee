"""Compares ten steps of a compiled program with PyTorch in float64: losses, every parameter, every update.

    python -m benchmarks.agreement [--json FILE] [--seeds N]          small models with the structure of real ones
    python -m benchmarks.agreement --real [--only NAME] [--json FILE]  models of their real depth and width

Differences are relative to the largest magnitude in the tensor. Of an update's difference, only the part counts that
rounding the stored value once a step does not explain: 0 means that there is nothing but rounding. The table also shows
the distance of float32 PyTorch from float64 PyTorch, which is the effect of rounding alone on the same training.

`flipped` counts units whose input is within rounding of a kink of ReLU, Clip or MaxPool, and which the reference has to
move to the other side of the kink to agree. `kink_loss`, `kink_value` and `kink_update` are the differences from that
reference.
Needs `pip install torch==2.13.0`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import show_table, write_json
from benchmarks.models import small_networks as models
from benchmarks.models.real_networks import REAL_CASES, RealCase
from benchmarks.models.small_cases import CASES, Case
from benchmarks.references import optional_torch, torch_reference
from benchmarks.references.kinks import KinkWatch, nearest_reference
from benchmarks.references.trained import STEPS, Batch, Differences, Trained, differences, make_batches
from benchmarks.references.workshop import Workshop
from edgetrain.graph.options import TrainOptions

_COLUMNS = ("model", "seed", "n", "loss", "value", "update")
_TORCH_COLUMNS = ("torch_float32_loss", "torch_float32_value", "torch_float32_update")
_REAL_COLUMNS = ("parameters", *_TORCH_COLUMNS)
_SMALL_COLUMNS = (*_TORCH_COLUMNS, "flipped", "kink_loss", "kink_value", "kink_update")


def compare(name: str, case: Case, workshop: Workshop, seed: int) -> dict[str, object]:
    """One model's row; the seed decides data and labels."""
    options = TrainOptions(
        batch=case.batch, loss=case.loss, optimizer=case.optimizer, batchnorm=case.batchnorm, clip_norm=case.clip_norm
    )
    model, rate = case.model(), case.learning_rate
    batches = make_batches(case.image, models.CLASSES, loss=case.loss, size=case.batch, seed=seed)
    found = workshop.train_model(model, batches, options, learning_rate=rate)

    def reference(watch: KinkWatch) -> Trained:
        return torch_reference.train_in_torch(model, batches, options, learning_rate=rate, watch=watch)

    nearest = nearest_reference(found, reference)
    return {
        "model": name,
        "seed": seed,
        **_against_torch(model, batches, options, rate, found),
        "flipped": len(nearest.flipped),
        **_fields("kink_", differences(found, nearest.expected)),
    }


def compare_real(name: str, case: RealCase, workshop: Workshop, seed: int) -> dict[str, object]:
    """One real model's row, ten steps."""
    model, batches = case.model(), case.batches(seed, STEPS)
    found = workshop.train_model(model, batches, case.options, learning_rate=case.learning_rate)
    apart = _against_torch(model, batches, case.options, case.learning_rate, found)
    elements = sum(value.size for value in found.final.values())
    return {"model": name, "seed": seed, "parameters": elements, **apart}


def _against_torch(
    model: Any, batches: Sequence[Batch], options: TrainOptions, rate: float, found: Trained
) -> dict[str, object]:
    """Our distance from float64 PyTorch, and float32 PyTorch's."""
    expected = torch_reference.train_in_torch(model, batches, options, learning_rate=rate)
    rounded = torch_reference.train_in_torch(model, batches, options, learning_rate=rate, dtype="float32")
    ours, torchs = differences(found, expected), differences(rounded, expected)
    return {"n": len(batches), **_fields("", ours), **_fields("torch_float32_", torchs)}


def _fields(prefix: str, apart: Differences) -> dict[str, float]:
    return {f"{prefix}loss": apart.loss, f"{prefix}value": apart.value, f"{prefix}update": apart.update}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=3, help="how many sets of data (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=5, help="the first of them (default: %(default)s)")
    parser.add_argument("--real", action="store_true", help="models of their real depth and width")
    parser.add_argument("--only", default="", metavar="NAME", help="only models whose name holds this")
    options = parser.parse_args(arguments)
    if optional_torch.IS_MISSING:
        print(f"this benchmark compares with PyTorch: {optional_torch.INSTALL}", file=sys.stderr)
        return 2
    optional_torch.set_threads(1)  # on a busy machine, threads of small kernels mostly wait for each other
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(root=Path(folder))
        (workshop.root / "run").mkdir()
        for name, compare_one in _comparisons(real=options.real).items():
            if options.only in name:
                for seed in range(options.first_seed, options.first_seed + options.seeds):
                    rows.append(compare_one(workshop, seed))
                    print(f"{name}, seed {seed}: losses {rows[-1]['loss']:.1e} apart", file=sys.stderr, flush=True)
    show_table(rows, _COLUMNS + (_REAL_COLUMNS if options.real else _SMALL_COLUMNS))
    if options.json:
        write_json(options.json, "agreement", rows)
    return 0


def _comparisons(*, real: bool) -> Mapping[str, Callable[[Workshop, int], dict[str, object]]]:
    if real:
        return {name: partial(compare_real, name, case) for name, case in REAL_CASES.items()}
    return {name: partial(compare, name, case) for name, case in CASES.items()}


if __name__ == "__main__":
    sys.exit(main())
