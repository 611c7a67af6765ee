"""`edgetrain compare`: runs side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgetrain.cli.command import Flag, Verb, to_path
from edgetrain.cli.console import Console
from edgetrain.cli.report import OPEN, open_page
from edgetrain.errors import UsageError


def run(arguments: argparse.Namespace, console: Console) -> int:
    from edgetrain.report.comparison import compare_runs
    from edgetrain.report.run_record import read_run

    if arguments.open and arguments.out is None:
        raise UsageError("--open needs --out", fix="add --out FILE.html")
    records = [read_run(Path(word)) for word in arguments.words]
    comparison = compare_runs(records)
    if arguments.out is not None:
        from edgetrain.files.atomic_file import replaced_file
        from edgetrain.report.compare_page import compare_page
        from edgetrain.report.page import to_html

        with replaced_file(arguments.out, is_shared=True) as file:
            file.write(to_html(compare_page(records)).encode())
        console.say(f"drew {arguments.out}")
    console.data(comparison.to_json() if console.as_json else comparison.to_text())
    if arguments.open:
        open_page(arguments.out, console)
    return 0


VERB = Verb(
    name="compare",
    summary="show runs side by side",
    description=(
        "Prints what runs used and reached, a column for each, and the values in which their recipes differ. With "
        "--out it also writes one HTML file with their loss curves over each other."
    ),
    words="RUN RUN...",
    least_words=2,
    flags=(Flag(name="--out", metavar="FILE", parse=to_path, help="write the comparison there, as a web page"), OPEN),
    examples=(
        "edgetrain compare runs/digits runs/digits-2",
        "edgetrain compare runs/digits runs/digits-2 --out compare.html",
    ),
    run=run,
)
