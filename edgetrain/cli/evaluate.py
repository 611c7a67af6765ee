"""`edgetrain eval`: a run's trained parameters on its test data. Needs no compiler for runs of this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgetrain.cli.command import Flag, Verb, table
from edgetrain.cli.console import Console

if TYPE_CHECKING:
    from edgetrain.dataset.samples import Part
    from edgetrain.run.files.trained import TrainedRun


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.pipeline.own_program import open_own_run
    from edgetrain.run.files.evaluation_data import evaluation_data, evaluation_part
    from edgetrain.run.files.trained import evaluate_run
    from edgetrain.targets.profile import HOST, load_target

    folder = Path(arguments.words[0])
    trained = open_own_run(folder, trust_program=bool(arguments.trust_program), notify=console.warn)
    dataset, data = evaluation_data(trained, arguments.data)
    part, name = evaluation_part(dataset)
    metrics = evaluate_run(trained, part, threads=load_target(HOST).device.codegen.cores)
    samples = len(part)
    classes = class_rows(trained, part, threads=load_target(HOST).device.codegen.cores)
    if console.as_json:
        found: dict[str, Any] = {
            "run": str(folder),
            "step": trained.step,
            "data": data.source,
            "part": name,
            "samples": samples,
        }
        if classes:
            found["classes"] = [{"label": label, "right": right, "samples": count} for label, right, count in classes]
        console.data(json.dumps({**found, **metrics}, indent=1) + "\n")
        return 0
    rows = [(name, f"{value:.6g}") for name, value in metrics.items()]
    whole = "" if name == "whole" else f"the {name} part of "
    rows += [("data", f"{samples} samples, {whole}{data.source}")]
    rows += [("parameters", f"after step {trained.step}, {trained.checkpoint}")]
    rows += [(f"class {label}", f"{right} of {count} right") for label, right, count in classes]
    console.data(table(rows, indent=0) + "\n")
    return 0


def class_rows(run: TrainedRun, part: Part, *, threads: int) -> list[tuple[str, int, int]]:
    """For each class that the data names and the part holds: its name, how many samples were right, and of how many."""
    import numpy as np

    from edgetrain.run.files.trained import predict
    from edgetrain.run.predict.task import task_kind

    names = run.reading.class_names
    if not names or task_kind(run.recipe.train.loss, run.recipe.metric) != "classes":
        return []
    outputs = predict(run, part.features, threads=threads)
    if outputs.ndim != 2 or part.labels.ndim != 1:  # a class for each place has no samples to count
        return []
    is_right = outputs.argmax(axis=1) == part.labels
    counts = np.bincount(part.labels, minlength=len(names))
    hits = np.bincount(part.labels[is_right], minlength=len(names))
    return [(name, int(hits[i]), int(counts[i])) for i, name in enumerate(names) if counts[i]]


VERB = Verb(
    name="eval",
    summary="evaluate a run's trained model on its test data",
    description=(
        "Loads the program and the best parameters of a run folder, and computes the loss and the metric of its recipe "
        "on the test part of the data, or on the validation part where there is no test part. "
        "Data given with --data is used whole where it has no test part. "
        "A program that was not built here is built again from the recipe."
    ),
    words="RUN",
    least_words=1,
    most_words=1,
    flags=(
        Flag(name="--data", metavar="SOURCE", help="evaluate on this data instead: a file or folder"),
        Flag(name="--trust-program", help="run the program in the folder, whoever built it: it is machine code"),
    ),
    examples=("edgetrain eval runs/digits", "edgetrain eval runs/digits --data bundled:digits --json"),
    run=run,
)
