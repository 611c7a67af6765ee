"""`edgetrain report`: what a run did, as one web page that needs nothing else."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from edgetrain.cli.command import Flag, Verb, to_path
from edgetrain.cli.console import Console
from edgetrain.errors import UsageError


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.report.run_page import write_run_page
    from edgetrain.report.run_record import key_of

    folder = Path(arguments.words[0])
    if arguments.open and arguments.out is None and key_of(folder) is not None:
        raise UsageError(
            "a browser cannot show the run's own page",
            why=f"the run is encrypted, and so is the page in `{folder}`",
            fix=f"write a page that is not: `edgetrain report {shlex.quote(str(folder))} --out report.html --open`",
        )
    path = write_run_page(folder, arguments.out, with_samples=not arguments.without_samples)
    console.data(json.dumps({"run": str(folder), "report": str(path)}) + "\n" if console.as_json else f"{path}\n")
    if arguments.open:
        open_page(path, console)
    return 0


def open_page(path: Path, console: Console) -> None:
    """Shows the page in the browser, where there is one."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        console.warn(f"found no browser to open `{path}` with")


OUT = Flag(
    name="--out", metavar="FILE", parse=to_path, help="where the page goes; report.html in the run folder without it"
)
OPEN = Flag(name="--open", help="show the page in the browser")

VERB = Verb(
    name="report",
    summary="show what a run did, as one web page",
    description=(
        "Writes one HTML file that needs no other and loads nothing: whether the budget was kept, the losses and "
        "metrics, the memory of a step call by call, the worst mistakes, the confusion matrix, calibration, time and "
        "energy by kernel, and what it takes to repeat the run. `edgetrain fit` writes it at the end of a run. It "
        "shows samples of the evaluation data; --without-samples leaves them out."
    ),
    words="RUN",
    least_words=1,
    most_words=1,
    flags=(
        OUT,
        OPEN,
        Flag(name="--without-samples", help="show no pictures or texts of the data"),
    ),
    examples=("edgetrain report runs/digits", "edgetrain report runs/digits --out digits.html --open"),
    run=run,
)
