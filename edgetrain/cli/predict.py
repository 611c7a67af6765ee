"""`edgetrain predict`: what a trained model says about files without labels, in the words of its data."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgetrain.cli.command import Flag, Verb
from edgetrain.cli.console import Console
from edgetrain.cli.request import positive
from edgetrain.errors import DataError, UsageError

if TYPE_CHECKING:
    from edgetrain.dataset.unlabelled import Item
    from edgetrain.run.predict.model import Model
    from edgetrain.run.predict.prediction import Prediction

_TOP = 3
_LINE_EVERY = 1000  # without a terminal: a line for so many samples
_MOST_ERRORS_SHOWN = 20


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.dataset.unlabelled import unlabelled
    from edgetrain.run.predict.model import predict_items

    if console.as_json and arguments.csv:
        raise UsageError("--json and --csv are two formats", fix="give one of them")
    source, *files = arguments.words
    with opened_model(Path(source), console, trust_program=bool(arguments.trust_program)) as model:
        about = model.description
        items = unlabelled([Path(file) for file in files], about.data, about.reading, kind=about.data_kind)
        predictions = _with_progress(predict_items(model, items), items, console)
        show = _show_json if console.as_json else _show_csv if arguments.csv else _show_text
        broken = show(predictions, model, console, source=source, top=arguments.top or _TOP)
    if not broken:
        return 0
    for prediction in broken[:_MOST_ERRORS_SHOWN]:
        console.tell(f"error: {prediction.error}" if prediction.name in prediction.error else _named(prediction))
    hidden = len(broken) - _MOST_ERRORS_SHOWN
    console.warn(
        f"{len(broken)} of {len(items)} could not be predicted" + (f", {hidden} not shown" if hidden > 0 else "")
    )
    return DataError.exit_code


def _named(prediction: Prediction) -> str:
    return f"error: {prediction.name}: {prediction.error}"


@contextlib.contextmanager
def opened_model(source: Path, console: Console, *, trust_program: bool = False) -> Iterator[Model]:
    """The model of a run folder, or in an ONNX file. Raises `UsageError` where neither is there."""
    from edgetrain.pipeline.own_program import open_own_run
    from edgetrain.run.predict.onnx_model import open_onnx_model
    from edgetrain.run.predict.run_model import opened_run_model
    from edgetrain.targets.profile import HOST, load_target

    if source.is_dir():
        run = open_own_run(source, trust_program=trust_program, notify=console.warn)
        with opened_run_model(run, threads=load_target(HOST).device.codegen.cores) as model:
            yield model
    elif source.exists():
        yield open_onnx_model(source)
    else:
        raise UsageError(
            f"there is no run folder and no model at `{source}`",
            fix="give the folder that `edgetrain fit` named at its end, or its model.onnx",
        )


def _with_progress(predictions: Iterable[Prediction], items: Sequence[Item], console: Console) -> Iterator[Prediction]:
    """The predictions, with a bar on a terminal where no results scroll by, and lines elsewhere."""
    if console.talk.isatty() and not console.quiet and not console.results_are_seen():
        from tqdm import tqdm

        yield from tqdm(predictions, total=len(items), unit="sample", file=console.talk)
        return
    for done, prediction in enumerate(predictions, start=1):
        yield prediction
        if done % _LINE_EVERY == 0:
            console.say(f"predicted {done} of {len(items)}")


def _show_text(
    predictions: Iterable[Prediction], model: Model, console: Console, *, source: str, top: int
) -> list[Prediction]:
    """A line for each sample that could be read: its name and what the model says. Returns the others."""
    broken = []
    for prediction in predictions:
        if prediction.error:
            broken.append(prediction)
        else:
            console.data(f"{prediction.name}  {_words(prediction, top)}\n")
    return broken


def _words(prediction: Prediction, top: int) -> str:
    if prediction.probabilities:
        return ", ".join(f"{label} {share:.4f}" for label, share in prediction.best(top))
    if prediction.label is not None:
        return prediction.label
    return ", ".join(f"{number:.6g}" for number in prediction.numbers)


def _show_json(
    predictions: Iterable[Prediction], model: Model, console: Console, *, source: str, top: int
) -> list[Prediction]:
    found = list(predictions)
    broken = [prediction for prediction in found if prediction.error]
    data = {
        "model": source,
        "samples": len(found),
        "failed": len(broken),
        "class_names": list(model.description.reading.class_names),
        "predictions": [prediction.to_json(top=top) for prediction in found],
    }
    console.data(json.dumps(data, indent=1) + "\n")
    return broken


def _show_csv(
    predictions: Iterable[Prediction], model: Model, console: Console, *, source: str, top: int
) -> list[Prediction]:
    """A row for each sample, those that could not be read with their error, so that rows and files stay together."""
    found = list(predictions)
    ranks = max((min(top, len(prediction.probabilities)) for prediction in found), default=0)
    sizes = max((len(prediction.numbers) for prediction in found), default=0)
    values = ["value"] if sizes == 1 else [f"value_{i}" for i in range(sizes)]
    is_labelled = any(prediction.label is not None for prediction in found)
    ranked = [f"{word}_{rank}" for rank in range(2, ranks + 1) for word in ("label", "probability")]
    first = ["label"] * is_labelled + ["probability"] * (ranks > 0)
    header = ["name", *first, *ranked, *values, "error"]
    text = io.StringIO()
    table = csv.DictWriter(text, header, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(_csv_row(prediction, ranks, values) for prediction in found)
    console.data(text.getvalue())
    return [prediction for prediction in found if prediction.error]


def _csv_row(prediction: Prediction, ranks: int, values: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": prediction.name, "error": prediction.error}
    if prediction.label is not None:
        row["label"] = prediction.label
    for rank, (label, share) in enumerate(prediction.best(ranks), start=1):
        ending = f"_{rank}" if rank > 1 else ""
        row |= {f"label{ending}": label, f"probability{ending}": f"{share:.6g}"}
    return row | {name: f"{number:.9g}" for name, number in zip(values, prediction.numbers, strict=False)}


VERB = Verb(
    name="predict",
    summary="classify files with a trained model, by the names of its classes",
    description=(
        "Reads files as the run read its data (size, mean, columns, tokens), and prints what the trained model says of "
        "each: the likeliest classes with their probabilities, or the value. FILES are images, wav, txt, jsonl, csv "
        "(with or without the label's column) and npz files (`x`), and folders of them. RUN needs no compiler "
        "where it was trained here. "
        "A MODEL.onnx that `edgetrain fit` wrote needs no run: onnxruntime runs it where that is installed, else the "
        "slow evaluator of the onnx package.\n\n"
        "A file that cannot be read is named, the others are predicted, and the exit code is 5."
    ),
    words="RUN|MODEL.onnx FILES...",
    least_words=2,
    flags=(
        Flag(name="--top", metavar="K", parse=positive, help=f"how many classes to list, the likeliest first: {_TOP}"),
        Flag(name="--csv", help="print a table with a row for each sample"),
        Flag(name="--trust-program", help="run the program in the folder, whoever built it: it is machine code"),
    ),
    examples=(
        "edgetrain predict runs/digits photo.png",
        "edgetrain predict runs/digits photos --csv > photos.csv",
        "edgetrain predict trained.onnx photos --top 1 --json",
    ),
    run=run,
)
