"""Whether a run has come to its end, so that resuming it would only rewrite its report."""

from __future__ import annotations

import shlex

from edgetrain.errors import DataError
from edgetrain.files.secret_key import read_key
from edgetrain.recipes import Recipe
from edgetrain.run.files.checkpoint import Progress, read_header
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import newest_checkpoint


def read_report(folder: RunFolder) -> RunReport:
    """What the run reported at its end. Raises `DataError` for a run that has not come to it, or a broken report."""
    try:
        text = folder.report.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        go_on = f"edgetrain fit --resume --out {shlex.quote(str(folder.path))}"
        raise DataError(
            f"`{folder.path}` holds no finished run",
            why=f"{folder.report.name} cannot be read: {error}",
            fix=f"give the folder that `edgetrain fit` named at its end, or finish the run with `{go_on}`",
        ) from error
    return RunReport.from_json(text, where=str(folder.report))


def finished_report(folder: RunFolder, recipe: Recipe) -> RunReport | None:
    """The report of a run that has nothing left to do for `recipe`; None for one that can go on.

    A report that is broken, or of an earlier end, is no reason to stop: going on writes it anew.
    """
    try:
        report = read_report(folder)
        progress = read_header(newest_checkpoint(folder.path), key=read_key(recipe.security.key)).progress
    except DataError:
        return None
    return report if report.steps == progress.step and _is_done(progress, recipe) else None


def how_to_go_on(folder: RunFolder, recipe: Recipe, report: RunReport) -> str:
    """The command that trains a finished run further."""
    epochs = max(recipe.train.epochs, round(report.epochs))
    words = [f"train.epochs={2 * epochs}"]
    words += ["train.steps=none"] if recipe.train.steps is not None else []
    words += ["train.patience=0"] if recipe.train.patience else []
    return f"edgetrain fit --resume --out {shlex.quote(str(folder.path))} {' '.join(words)}"


def _is_done(progress: Progress, recipe: Recipe) -> bool:
    train = recipe.train
    whole = train.epochs * progress.steps_per_epoch
    if progress.step >= (whole if train.steps is None else min(whole, train.steps)):
        return True
    best = progress.best
    is_at_epoch_end = progress.step % progress.steps_per_epoch == 0
    return bool(train.patience) and is_at_epoch_end and best is not None and best.stale_epochs >= train.patience
