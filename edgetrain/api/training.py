"""`edgetrain.fit`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from edgetrain.api.models import (
    budget_of,
    export,
    is_named,
    own_model,
    python_recipe,
    recipe_of_module,
    run_name,
    source_of,
    write_model,
)
from edgetrain.api.runs import Run
from edgetrain.api.told import warn
from edgetrain.dataset.in_memory import dataset_of
from edgetrain.errors import UsageError
from edgetrain.frameworks.torch_inputs import is_torch_module, training_rows
from edgetrain.pipeline.fit import fit as fit_job
from edgetrain.pipeline.job import Job
from edgetrain.python_progress import python_progress
from edgetrain.run.files.claim import new_run_folder, resumed_run_folder
from edgetrain.run.files.folders import JobKeeper, JobRecord, newest_resumable
from edgetrain.run.limits.broker import Share
from edgetrain.run.loop.callbacks import Callback
from edgetrain.targets.profile import HOST, load_target


def fit(
    model: Any,
    data: Any = None,
    *,
    target: str = HOST,
    budget: str | int | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    threads: int | None = None,
    resume: bool = False,
    new_data: bool = False,
    adapt: bool = False,
    share: str | None = None,
    progress: bool | None = None,
    **overrides: object,
) -> Run:
    """Trains `model` on `data` inside `budget` and returns the finished run.

    `model`: the path of an ONNX file, the name or path of a recipe, `zoo:NAME`, an `onnx.ModelProto`, or a PyTorch
    `nn.Module`, which stays as it is: `Run.load_into` gives it the trained weights.
    `data`: arrays or lists `(x, y)`; a mapping with `x_train`, `y_train` and perhaps `x_test`, `y_test`; a DataFrame of
    pandas, polars or pyarrow (`data_label` names the label's column); a path; a `Dataset` or `DataLoader` of PyTorch;
    an iterable of `(x, y)`, samples or batches; a `Dataset`. A recipe brings its own where it is None.
    `callbacks`: one, or several.
    `budget`: bytes, or a size such as `"64MB"`. `out`: the run folder; without it the first free of `runs/NAME`.
    `resume`: go on with the run in `out`, or the newest of that name; `new_data`: even if its data was other data.
    `adapt`: switch to a smaller plan while this machine is short of memory. `share`: `"desk=2GB"` shares this much
    with the other jobs that name it. `progress`: whether to show it; without a wish on a terminal and in a notebook.
    `overrides`: values of the recipe, `train_epochs=3` for `train.epochs`.

    Raises the `EdgetrainError` that the command line would print.
    """
    profile = load_target(target)
    hooks = _callbacks(callbacks)
    data_source = source_of(data)
    name = run_name(model, overrides, data_source)
    asked = Path(out) if out is not None else None
    claim = resumed_run_folder(asked or newest_resumable(name)) if resume else new_run_folder(asked, name)
    with claim as folder, own_model(name, folder) as path:
        if is_torch_module(model):
            recipe = recipe_of_module(model, overrides, data_source)
            data = dataset_of(data, recipe)
            model, overrides = export(model, training_rows(data, recipe), path, overrides)
        elif not is_named(model):
            model = write_model(model, folder)  # with the run: resuming it needs the model again
        recipe = python_recipe(str(model), overrides, data_source=data_source)
        job = Job(
            recipe=recipe,
            target=profile,
            budget=budget_of(budget),
            threads=threads,
            adapt=adapt,
            share=Share.parse(share) if share is not None else None,
            notify=warn,
        )
        shown = python_progress(progress)
        if shown is not None:
            job = dataclasses.replace(job, progress=shown, notify=shown.tell)
        record = JobRecord(
            target=target,
            solver=job.solver,
            memory_bytes=job.budget.memory_bytes,
            threads=job.threads,
            adapt=adapt,
            share=share,
        )
        told = (shown,) if shown is not None else ()
        with contextlib.ExitStack() as ending:
            if shown is not None:
                ending.callback(shown.close)
            report = fit_job(
                job,
                folder,
                dataset=dataset_of(data, recipe),
                callbacks=(JobKeeper(record, folder), *told, *hooks),
                resume=resume,
                is_new_data=new_data,
                is_claimed=True,
            )
    return Run(report=report, folder=folder)


def _callbacks(callbacks: Iterable[Callback] | Callback) -> tuple[Callback, ...]:
    """Raises `UsageError` for what is none."""
    is_one = isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable)
    given: tuple[Any, ...] = (callbacks,) if is_one else tuple(cast(Iterable[Any], callbacks))
    for one in given:
        if not isinstance(one, Callback):
            what = f"the class `{one.__name__}`" if isinstance(one, type) else f"`{type(one).__name__}`"
            raise UsageError(
                f"{what} in `callbacks` is no callback",
                why="a callback is an object whose class derives from `edgetrain.Callback`",
                fix="derive a class from it, override what you need, such as `on_epoch_end`, and pass an object of it",
            )
    return given
