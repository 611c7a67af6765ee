"""`edgetrain inspect`: what edgetrain sees in a model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgetrain.cli.command import Flag, Verb, table
from edgetrain.cli.console import Console
from edgetrain.cli.request import OVERRIDES_TEXT, split_words
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import UsageError
from edgetrain.pipeline.source import recipe_of
from edgetrain.units import show_bytes


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.compiler.compile import inspect_model
    from edgetrain.pipeline.job import Job, model_source, train_options
    from edgetrain.pipeline.resolve import resolve_without_data
    from edgetrain.targets.profile import HOST, load_target

    source, overrides = split_words(arguments.words)
    if source is None:
        raise UsageError("`edgetrain inspect` needs a model or a recipe", fix=f"like `{VERB.examples[0]}`")
    recipe = recipe_of(source, overrides, needs_data=False)
    with StageProgress(console) as stages:
        job = resolve_without_data(Job(recipe=recipe, target=load_target(HOST), progress=stages, notify=console.warn))
        options = train_options(job.recipe, job.contribution)
        found = inspect_model(model_source(job.recipe), options, stages)
    console.data(json.dumps(found, indent=1) + "\n" if console.as_json else to_text(found, names=arguments.parameters))
    return 0


def to_text(found: Mapping[str, Any], *, names: bool) -> str:
    """The facts of `inspect_model` on one screen; with `names` every parameter has its line."""
    parameters: Sequence[Mapping[str, Any]] = found["parameters"]
    trained = [p for p in parameters if p["trained"]]
    missing = found["missing_gradients"]
    rows = [
        ("model", f"{found['name']}, opset {found['opset']}"),
        *(("input", _tensor(tensor)) for tensor in found["inputs"]),
        *(("output", _tensor(tensor) + mark) for tensor, mark in zip(found["outputs"], _marks(found), strict=True)),
        *((("classes", ", ".join(names_of)),) if (names_of := found["class_names"]) else ()),
        ("ops", ", ".join(f"{op} {count}" for op, count in found["ops"].items())),
        ("parameters", _count(parameters)),
        ("trained", _count(trained)),
        ("gradients", "every op on the way to a trained parameter has one" if not missing else "MISSING"),
        *(("", line) for line in missing),
        *(("warning" if i == 0 else "", line) for i, line in enumerate(found.get("warnings", ()))),
        *(("rewrite" if i == 0 else "", line) for i, line in enumerate(found["rewrites"])),
    ]
    text = table(rows, indent=0) + "\n"
    if names:
        lines = [(p["name"], f"{p['shape']} {show_bytes(p['bytes'])} {_how(p)}") for p in parameters]
        text += "\n" + table(lines, indent=0) + "\n"
    return text


def _marks(found: Mapping[str, Any]) -> list[str]:
    """Behind each output, which one the loss reads; nothing where there is but one."""
    count = len(found["outputs"])
    return [", trained" if i == 0 and count > 1 else "" for i in range(count)]


def _tensor(tensor: Mapping[str, Any]) -> str:
    return f"{tensor['name']} {tensor['dtype']} {tensor['shape']}"


def _count(parameters: Sequence[Mapping[str, Any]]) -> str:
    elements = 0
    for parameter in parameters:
        size = 1
        for extent in parameter["shape"]:
            size *= extent
        elements += size
    return f"{elements:,} in {len(parameters)} tensors, {show_bytes(sum(p['bytes'] for p in parameters))}"


def _how(parameter: Mapping[str, Any]) -> str:
    if parameter["running_statistic"]:
        return "measured"
    return "trained" if parameter["trained"] else "frozen"


VERB = Verb(
    name="inspect",
    summary="show a model's ops, parameters and missing gradients",
    description=(
        "Imports the model and shows its ops, inputs and outputs, its parameters and which of them are trained, every "
        "gradient that is missing, and what the importer rewrote.\n\n" + OVERRIDES_TEXT
    ),
    words="RECIPE|MODEL.onnx [key=value ...]",
    least_words=1,
    flags=(Flag(name="--parameters", help="list every parameter by its name"),),
    examples=("edgetrain inspect digits", "edgetrain inspect digits update.mode=head --parameters"),
    run=run,
)
