"""Exit codes and the errors behind them, from the classes that are raised."""

from __future__ import annotations

import inspect

from edgetrain.cli.failure import EXIT_CODES
from edgetrain.errors import ERRORS
from website.reference.table import code, table

_INTRODUCTION = """\
# Exit codes and errors

Every command ends with one of these codes, and every function of the Python interface raises one of these errors. An
error has `what` happened, `why`, and a `fix` that you can paste. `edgetrain.EdgetrainError` is the base of all.
"""


def page() -> str:
    """A row for each exit code, with its errors, and what each of them means."""
    rows = [
        (code(str(number)), meaning, ", ".join(code(name) for name, kind in ERRORS.items() if kind.exit_code == number))
        for number, meaning in EXIT_CODES.items()
    ]
    errors = [
        (code(name), code(str(kind.exit_code)), inspect.cleandoc(kind.__doc__ or "")) for name, kind in ERRORS.items()
    ]
    return "\n".join(
        (
            _INTRODUCTION,
            table(("exit code", "meaning", "error"), rows),
            "## Errors\n",
            table(("error", "exit code", "when"), errors),
        )
    )
