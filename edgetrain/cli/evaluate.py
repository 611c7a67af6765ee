"""`edgetrain eval`: a run's trained parameters on its test data. Needs no compiler."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgetrain.cli.command import Flag, Verb, table
from edgetrain.cli.console import Console

if TYPE_CHECKING:
    from edgetrain.dataset.samples import Dataset, Part


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.dataset.load import load_dataset
    from edgetrain.run.files.trained import evaluate_run, open_run
    from edgetrain.targets.profile import HOST, load_target

    folder = Path(arguments.words[0])
    trained = open_run(folder)
    data = trained.recipe.data
    if arguments.data is not None:
        data = dataclasses.replace(
            data, source=arguments.data, format="auto", limit=None, test_limit=None, validation=0.0
        )
    part, name = evaluation_part(load_dataset(data))
    metrics = evaluate_run(trained, part, threads=load_target(HOST).device.codegen.cores)
    samples = len(part)
    if console.as_json:
        found = {"run": str(folder), "step": trained.step, "data": data.source, "part": name, "samples": samples}
        console.data(json.dumps({**found, **metrics}, indent=1) + "\n")
        return 0
    rows = [(name, f"{value:.6g}") for name, value in metrics.items()]
    whole = "" if name == "whole" else f"the {name} part of "
    rows += [("data", f"{samples} samples, {whole}{data.source}")]
    rows += [("parameters", f"after step {trained.step}, {trained.checkpoint}")]
    console.data(table(rows, indent=0) + "\n")
    return 0


def evaluation_part(dataset: Dataset) -> tuple[Part, str]:
    """The test part, else the validation part, else all there is; and what to call it."""
    if dataset.test is not None:
        return dataset.test, "test"
    if dataset.validation is not None:
        return dataset.validation, "validation"
    return dataset.train, "whole"


VERB = Verb(
    name="eval",
    summary="evaluate a run's trained model on its test data",
    description=(
        "Loads the program and the best parameters of a run folder, and computes the loss and the metric of its recipe "
        "on the test part of the data, or on the validation part where there is no test part. "
        "Data given with --data is used whole where it has no test part."
    ),
    words="RUN",
    least_words=1,
    most_words=1,
    flags=(Flag(name="--data", metavar="SOURCE", help="evaluate on this data instead: a file or folder"),),
    examples=("edgetrain eval runs/digits", "edgetrain eval runs/digits --data bundled:digits --json"),
    run=run,
)
