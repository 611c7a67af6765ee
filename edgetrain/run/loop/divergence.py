"""When the loss is NaN or infinite: the error message, and the last checkpoint that is still good."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError, DivergedError
from edgetrain.files.secret_key import SecretKey
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.checkpoint import NEWEST, PREVIOUS, promote_previous, read_header
from edgetrain.run.loop.settings import TrainSettings


def diverged(
    what: str, *, step: int, settings: TrainSettings, out: Path, inputs: Mapping[str, Array]
) -> DivergedError | DataError:
    """The error for a run whose step `step` (counted from 1) gave no number. Keeps the last good checkpoint newest.

    A batch that holds NaN itself is the data's fault, and then the error is a `DataError`.
    """
    broken_inputs = [name for name, values in inputs.items() if not np.isfinite(values).all()]
    if broken_inputs:
        return DataError(
            what,
            why=f"the batch itself holds NaN or infinity in {', '.join(f'`{name}`' for name in broken_inputs)}",
            fix="remove or repair those rows of the dataset",
        )
    good = _keep_last_good(out, step, settings.key)
    kept = f"the last good checkpoint is `{out / NEWEST}`, step {good}" if good else "no good checkpoint exists yet"
    lower = f"train.learning_rate={settings.learning_rate.peak / 10:.2g}"
    onward = f"go on with `{settings.resume_command} {lower}`" if good else f"start again with `{lower}`"
    return DivergedError(
        f"{what}; {kept}",
        why=f"a learning rate of {settings.learning_rate.peak:g} is most likely too high for this model and data",
        fix=f"{onward}, or clip the gradients with `train.clip_norm=1`",
    )


def _keep_last_good(out: Path, step: int, key: SecretKey | None) -> int | None:
    """The step of the newest checkpoint that is known to give a finite loss; newer ones are dropped.

    A checkpoint taken right before the failing step holds the very parameters that failed: no learning rate could
    save a run that resumed from it. One that is older has given a finite loss since.
    """
    newest = _step_of(out / NEWEST, key)
    if newest is not None and newest < step - 1:
        return newest
    previous = _step_of(out / PREVIOUS, key)
    if previous is not None:
        promote_previous(out)
    return previous


def _step_of(path: Path, key: SecretKey | None) -> int | None:
    try:
        return read_header(path, key=key).progress.step
    except DataError:
        return None
