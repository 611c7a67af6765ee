"""The last stage: a program and a dataset become a trained model, a report, and the proof of what memory was used."""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
from dataclasses import dataclass, replace
from typing import Any

from edgetrain.compiler.compiled import Compiled
from edgetrain.compiler.schedules import records_text, summary
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity
from edgetrain.dataset.convert import Conversion, check_sample
from edgetrain.dataset.samples import Dataset
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.build_cache import file_sha256
from edgetrain.graph.adapters import beside_from_json
from edgetrain.graph.ir import Role
from edgetrain.planner.plan import Plan
from edgetrain.program.artifact import Artifact
from edgetrain.recipes import Recipe
from edgetrain.run.engines.local import LocalEngine, planned_process_bytes
from edgetrain.run.files.export import write_trained_onnx
from edgetrain.run.files.report import Energy, RunReport, write_report
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.limits.exchange import hold_run
from edgetrain.run.limits.governor import Beginning, Governor, Limit
from edgetrain.run.limits.ladder import Ladder, Rung
from edgetrain.run.limits.period import Period
from edgetrain.run.loop.callbacks import Callback
from edgetrain.run.loop.evaluation import evaluate
from edgetrain.run.loop.feed import TEST, VALIDATION, DatasetFeed
from edgetrain.run.loop.labels import with_fitting_labels
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings, loss_options_of
from edgetrain.run.loop.train import TrainOutcome, train
from edgetrain.run.loop.warm_up import warm_up
from edgetrain.run.sensors.energy import EnergyMeter, find_sensor
from edgetrain.run.sensors.process_memory import peak_resident_bytes, reset_peak, resident_bytes

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Runnable:
    """What is run: a program, with what it was compiled from and the plan that it follows."""

    compiled: Compiled
    plan: Plan
    program: Artifact


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """How it is run, and where everything goes."""

    recipe: Recipe
    folder: RunFolder
    target: str  # what the plan is for
    is_target_here: bool = True
    threads: int
    carbon: CarbonIntensity = WORLD_AVERAGE
    resume: bool = False
    callbacks: tuple[Callback, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemoryLimits:
    """What bounds the run's memory. While it runs, it switches to another plan of the ladder where they ask for it."""

    budget_bytes: int | None  # the user's
    reserve_bytes: int = 0  # addresses for the largest plan that the run may switch to
    ladder: Ladder | None = None
    others: tuple[Limit, ...] = ()  # the system's shortage, a share with other jobs


def execute(runnable: Runnable, dataset: Dataset, request: RunRequest, limits: MemoryLimits) -> RunReport:
    """Trains the program on `dataset` and writes everything to the request's folder.

    Raises as `train` does, `DataError` when data and model do not fit, and `UsageError` when the folder's run is going
    on in another process.
    """
    compiled, program, recipe, folder = runnable.compiled, runnable.program, request.recipe, request.folder
    inputs = {i["name"]: (tuple(i["shape"][1:]), str(i["dtype"])) for i in compiled.facts["inputs"]}
    check_sample(dataset.train.features[0], inputs, Conversion.of(recipe.data))
    dataset = with_fitting_labels(dataset, recipe.train.loss, program.graph, compiled.facts["outputs"][0])
    folder.create()
    with hold_run(folder.path):
        _fill_folder(folder, recipe, compiled, program)
        settings = settings_of(recipe, compiled, program, dataset, folder)
        feed = DatasetFeed(
            dataset, batch=recipe.train.batch, seed=recipe.train.seed, conversion=Conversion.of(recipe.data)
        )
        warm_up(program.manifest, feed, settings)
        meter = EnergyMeter(find_sensor())  # looking for it takes memory that is not the program's
        growth = _Growth.from_here()
        with LocalEngine(
            program, threads=request.threads, page_directory=folder.path, reserve_bytes=limits.reserve_bytes
        ) as engine:
            governor = Governor(engine, _beginning(runnable, folder, limits), limits.others)
            with meter:
                outcome = train(
                    engine,
                    feed,
                    settings,
                    out=folder.path,
                    callbacks=request.callbacks,
                    resume=request.resume,
                    governor=governor,
                )
            test = evaluate(engine, feed, settings, TEST) if dataset.evaluation is not None else {}
            report = _report(engine, runnable, request, outcome, governor.periods(), growth.bytes())
            _write_model(engine, program, compiled, folder)
        if engine.artifact != program:
            engine.artifact.copy_to(folder.program)  # `export` ships the plan that the run ended with
        report = replace(report, test=test or {}, energy=_energy(outcome, runnable.plan, request, meter))
        write_report(report, folder.path)
    return report


def _beginning(runnable: Runnable, folder: RunFolder, limits: MemoryLimits) -> Beginning:
    """What the governor starts from: the program's own rung, and those it may switch to."""
    rung = Rung.of(runnable.program)
    return Beginning(
        folder=folder.path,
        compiled_directory=runnable.compiled.directory.resolve(),
        compiled_key=runnable.compiled.key,
        rung=rung,
        ladder=limits.ladder or Ladder.of([rung]),
        budget_bytes=limits.budget_bytes,
    )


def _fill_folder(folder: RunFolder, recipe: Recipe, compiled: Compiled, program: Artifact) -> None:
    """Leaves in the folder what a run is resumed from. The run must be held."""
    with replaced_file(folder.recipe) as file:
        file.write(recipe.with_absolute_paths().to_json().encode())  # a run may be resumed from anywhere
    with replaced_file(folder.schedules) as file:
        file.write(records_text(compiled.schedules).encode())  # a run that goes on must sum in the same order
    program.copy_to(folder.program)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """How much this process grows from a moment on."""

    baseline_bytes: int | None
    is_peak_ours: bool

    @classmethod
    def from_here(cls) -> _Growth:
        return cls(baseline_bytes=resident_bytes(), is_peak_ours=reset_peak())

    def bytes(self) -> int | None:
        """The most since then; `None` where the system does not say."""
        peak = peak_resident_bytes()
        if not self.is_peak_ours or peak is None or self.baseline_bytes is None:
            return None
        return peak - self.baseline_bytes


def _write_model(engine: LocalEngine, program: Artifact, compiled: Compiled, folder: RunFolder) -> None:
    """The ONNX file with the engine's parameters in place of its own, adapters merged."""
    parameters = {t.name: engine.tensor(t.name) for t in program.graph.by_role(Role.PARAMETER)}
    adapters = [beside_from_json(a) for a in compiled.facts["adapters"]]
    write_trained_onnx(compiled.model, parameters, folder.model, adapters=adapters)


def _energy(outcome: TrainOutcome, plan: Plan, request: RunRequest, meter: EnergyMeter) -> Energy:
    return Energy.of(
        steps=outcome.steps_taken,
        modelled_j=plan.joules * request.recipe.train.accumulate * outcome.steps_taken,
        meter=meter,
        carbon=request.carbon,
        is_target_here=request.is_target_here,
    )


def settings_of(
    recipe: Recipe, compiled: Compiled, program: Artifact, dataset: Dataset, folder: RunFolder
) -> TrainSettings:
    train_section = recipe.train
    is_adam = train_section.optimizer in ("adam", "adamw")
    return TrainSettings(
        # Not the plan: a run may go on under another budget, to the same bits.
        program_sha256=compiled.identity(program.manifest.target_name),
        inputs=tuple(i["name"] for i in compiled.facts["inputs"]),
        output=compiled.facts["outputs"][0],
        loss=train_section.loss,
        loss_options=loss_options_of(train_section),
        epochs=train_section.epochs,
        steps=train_section.steps,
        learning_rate=LearningRate(
            peak=train_section.learning_rate,
            schedule=train_section.schedule,
            warmup_steps=train_section.warmup_steps,
            step_every=train_section.step_every,
            step_gamma=train_section.step_gamma,
        ),
        seed=train_section.seed,
        accumulate=train_section.accumulate,
        adam_betas=(train_section.beta1, train_section.beta2) if is_adam else None,
        metrics=(recipe.metric,),
        validation_split=VALIDATION if dataset.validation is not None else None,
        monitor=recipe.metric if dataset.validation is not None else "loss",
        patience_epochs=train_section.patience or None,
        checkpoint_steps=train_section.checkpoint_every or None,
        resume_command=f"edgetrain fit {recipe.name} --resume --out {shlex.quote(str(folder.path))}",
    )


def _report(
    engine: LocalEngine,
    runnable: Runnable,
    request: RunRequest,
    outcome: TrainOutcome,
    periods: tuple[Period, ...],
    process_peak: int | None,
) -> RunReport:
    compiled, plan, recipe, threads = runnable.compiled, runnable.plan, request.recipe, request.threads
    progress, program = outcome.progress, engine.artifact
    recipe_data: dict[str, Any] = json.loads(recipe.to_json())
    highest = max(period.planned_peak_bytes for period in periods)  # what the process grew by is of them all
    return RunReport(
        planned_peak_bytes=program.manifest.planned_peak_bytes,
        measured_peak_bytes=engine.measured_peak_bytes(),
        planned_process_bytes=planned_process_bytes(program, threads) + highest - program.manifest.planned_peak_bytes,
        process_peak_bytes=process_peak,
        budget_bytes=periods[-1].budget_bytes,
        phases=periods,
        solver=plan.solver,
        plan_gap=plan.gap if len(periods) == 1 else None,  # of the plan that the run began with
        planned_seconds_per_step=program.manifest.planned_seconds,
        seconds_per_step=outcome.seconds_per_step,
        steps=progress.step,
        epochs=outcome.epochs,
        ending=str(outcome.ending),
        losses=progress.losses,
        validations=progress.validations,
        best_step=progress.best.step if progress.best is not None else None,
        model_sha256=file_sha256(compiled.model),
        program_sha256=program.identity,
        parameters_sha256=hashlib.sha256(engine.saved).hexdigest(),
        target=request.target,
        ran_on="this host",
        threads=threads,
        seed=recipe.train.seed,
        versions=dict(program.manifest.versions),
        recipe=recipe_data,
        kernels=summary([record.choice for record in compiled.schedules.values()], compiled.trials),
        traffic=compiled.traffic,
    )
