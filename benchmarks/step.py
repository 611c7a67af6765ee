"""Seconds of one training step against PyTorch eager on the same ONNX graph, timed in turns.

    python -m benchmarks.step [--json FILE] [--models digits-cnn-bn,...] [--threads 1,2]

Both run float32 with the same optimizer on the same data; a speedup below 1 means that PyTorch is faster. Memory is
how much a fresh process grows over three steps, for each side. PyTorch takes a step on one sample before it is
measured: loading its libraries is not counted against it, nor is the little that this step leaves behind.
Needs `pip install torch==2.13.0`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks.measure import (
    Prepared,
    fill_inputs,
    prepare,
    run_in_child,
    show_table,
    stepper,
    time_in_turns,
    write_json,
)
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.run.local import LocalEngine
from edgetrain.run.process_memory import peak_resident_bytes, reset_peak, resident_bytes
from tests.edgetrain.agreement import torch_reference
from tests.edgetrain.agreement.trained import Batch

CLASSES = 10
MODELS = ("digits-cnn", "digits-cnn-bn", "fashion-cnn", "efficientnet-lite0")
_BATCH = {"efficientnet-lite0": 4}
_RATE = 1e-4


def _options(model: str) -> TrainOptions:
    return TrainOptions(batch=_BATCH.get(model, 32), optimizer=OptimizerOptions(kind="sgd", momentum=0.9))


def _prepare(model: str) -> Prepared:
    return prepare(model, f"zoo:{model}", _options(model), classes=CLASSES)


def _torch_step(prepared: Prepared, batch: Batch, threads: int) -> Callable[[], object]:
    """The same ONNX file, head included, in torch's eager mode."""
    torch_reference.set_threads(threads)
    model = torch_reference.TorchModel(onnx.load(str(prepared.compiled.model)), dtype="float32")
    trainer = torch_reference.TorchTrainer(model, _options(prepared.name), _RATE)
    return lambda: trainer.step(batch)


def measure(prepared: Prepared, threads: int, rounds: int) -> dict[str, object]:
    program = prepared.program(prepared.plan())
    with (
        tempfile.TemporaryDirectory() as pages,
        LocalEngine(program, threads=threads, page_directory=Path(pages)) as engine,
    ):
        data, labels = fill_inputs(engine, prepared.compiled, classes=CLASSES)
        peer = _torch_step(prepared, Batch(data=data, labels=labels), threads)
        both = time_in_turns({"ours": stepper(engine), "peer": peer}, rounds=rounds)
    ours, theirs = both["ours"], both["peer"]
    memory = {
        side: run_in_child("benchmarks.step", {"model": prepared.name, "threads": threads, "side": side})["bytes"]
        for side in ("ours", "peer")
    }
    return {
        "model": prepared.name,
        "batch": len(labels),
        "threads": threads,
        "seconds": ours.seconds,
        "peer_seconds": theirs.seconds,
        "speedup": theirs.seconds / ours.seconds,
        "peak_bytes": memory["ours"],
        "peer_peak_bytes": memory["peer"],
        "spread": ours.spread,
        "peer_spread": theirs.spread,
        "n": ours.n,
    }


def grow(model: str, threads: int, side: str) -> dict[str, Any]:
    """How much this process grows over three steps of one side; meant for a fresh process."""
    prepared = _prepare(model)
    program = prepared.program(prepared.plan())
    with tempfile.TemporaryDirectory() as pages:
        # Data is made by an engine of its own, closed again, so that both sides start from the same process.
        with LocalEngine(program, threads=1, page_directory=Path(pages)) as engine:
            data, labels = fill_inputs(engine, prepared.compiled, classes=CLASSES)
        del engine
        if side == "peer":
            _torch_step(prepared, Batch(data=data[:1], labels=labels[:1]), threads)()
        before = resident_bytes()
        can_reset = reset_peak()
        if side == "ours":
            with LocalEngine(program, threads=threads, page_directory=Path(pages)) as engine:
                fill_inputs(engine, prepared.compiled, classes=CLASSES)
                _three_times(stepper(engine))
        else:
            _three_times(_torch_step(prepared, Batch(data=data, labels=labels), threads))
        after = peak_resident_bytes()
    return {"bytes": after - before if can_reset and after is not None and before is not None else None}


def _three_times(step: Callable[[], object]) -> None:
    for _ in range(3):
        step()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if torch_reference.IS_MISSING:
        print(f"this benchmark compares with PyTorch: {torch_reference.INSTALL}", file=sys.stderr)
        return 2
    if options.child:
        print(json.dumps(grow(**json.loads(options.child))))
        return 0
    rows = []
    for model in options.models.split(","):
        prepared = _prepare(model)
        rows += [measure(prepared, int(threads), options.rounds) for threads in options.threads.split(",")]
    columns = ("model", "batch", "threads", "seconds", "peer_seconds", "speedup", "peak_bytes", "peer_peak_bytes")
    show_table(rows, (*columns, "spread", "peer_spread"))
    if options.json:
        write_json(options.json, "step", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
