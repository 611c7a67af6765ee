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
from edgetrain.dataset.augment.augmentation import Augmentation
from edgetrain.dataset.augment.examples import AugmentedExample, augmented_examples
from edgetrain.dataset.convert import Conversion, check_sample
from edgetrain.dataset.reading import Scaling
from edgetrain.dataset.samples import Dataset
from edgetrain.dataset.table import misfit
from edgetrain.errors import DataError
from edgetrain.files.atomic_folder import sweep_beside
from edgetrain.files.build_cache import file_sha256
from edgetrain.files.sealed import sealed
from edgetrain.files.secret_key import SecretKey, read_key
from edgetrain.graph.adapters import beside_from_json
from edgetrain.graph.ir import Role
from edgetrain.graph.persistent import SAVED_ROLES
from edgetrain.planner.plan import Plan
from edgetrain.program.artifact import Artifact
from edgetrain.program.process_memory import planned_process_bytes
from edgetrain.recipes import Recipe
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.data_identity import data_digest, data_text, require_same_data
from edgetrain.run.files.export import write_trained_onnx
from edgetrain.run.files.history import read_history
from edgetrain.run.files.protected import protected_file
from edgetrain.run.files.report import Energy, RunReport, write_report
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.sessions import Session, SessionKeeper, read_sessions
from edgetrain.run.files.trained import read_reading
from edgetrain.run.learned.keep import keep_learned
from edgetrain.run.limits.exchange import clean_exchange
from edgetrain.run.limits.governor import Beginning, Governor, Limit
from edgetrain.run.limits.ladder import Ladder, Rung
from edgetrain.run.limits.period import Period
from edgetrain.run.loop.callbacks import Callback
from edgetrain.run.loop.early_stopping import reason_to_keep
from edgetrain.run.loop.evaluation import evaluate
from edgetrain.run.loop.feed import TEST, VALIDATION, DatasetFeed, conversion_of
from edgetrain.run.loop.finite import finite_tensors
from edgetrain.run.loop.labels import with_fitting_labels
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings, loss_options_of
from edgetrain.run.loop.step_log import LOG
from edgetrain.run.loop.targets import is_in_units_of, scaling_of, with_scaled_targets
from edgetrain.run.loop.train import TrainOutcome, require_resumable, train
from edgetrain.run.loop.warm_up import warm_up
from edgetrain.run.predict.task import describe
from edgetrain.run.sensors.energy import EnergyMeter, find_sensor
from edgetrain.run.sensors.process_memory import Resident, grown_bytes, reset_peak, resident

log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20
_SHOWN_EXAMPLES = 4  # of augmentation, in the report


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
    ran_on: str = "this host"
    threads: int
    carbon: CarbonIntensity = WORLD_AVERAGE
    resume: bool = False
    is_new_data: bool = False  # a run that goes on may do so on other data
    callbacks: tuple[Callback, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemoryLimits:
    """What bounds the run's memory. While it runs, it switches to another plan of the ladder where they ask for it."""

    budget_bytes: int | None  # the user's
    reserve_bytes: int = 0  # addresses for the largest plan that the run may switch to
    ladder: Ladder | None = None
    others: tuple[Limit, ...] = ()  # the system's shortage, a share with other jobs


def execute(runnable: Runnable, dataset: Dataset, request: RunRequest, limits: MemoryLimits) -> RunReport:
    """Trains the program on `dataset` and writes everything to the request's folder, which the caller has claimed.

    Raises as `train` does, and `DataError` when data and model do not fit.
    """
    compiled, program, recipe, folder = runnable.compiled, runnable.program, request.recipe, request.folder
    key = read_key(recipe.security.key)
    conversion = conversion_of(recipe.data, program.graph)
    try:
        check_sample(dataset.train.features[0], input_shapes(compiled), conversion)
    except DataError as error:
        if dataset.reading.columns:
            raise misfit(error, dataset.reading) from error
        raise
    dataset = with_fitting_labels(dataset, recipe.train.loss, program.graph, compiled.facts["outputs"][0])
    with clean_exchange(folder.path):
        digest = data_digest(dataset)
        dataset = with_scaled_targets(dataset, _target_scaling(runnable, dataset, request))
        sweep_beside(folder.program, is_held=True)
        settings = replace(settings_of(recipe, compiled, program, dataset, folder), key=key)
        feed = DatasetFeed(
            dataset,
            batch=recipe.train.batch,
            seed=recipe.train.seed,
            conversion=conversion,
            augmentation=Augmentation.of(recipe.data.augment, dataset.train),
        )
        if request.resume:  # whatever can be refused is refused here: nothing of the run has changed yet
            require_resumable(feed, settings, out=folder.path, saved_bytes=program.manifest.saved_bytes)
            if not request.is_new_data:
                require_same_data(folder.data, digest, key)
        _fill_folder(folder, request, runnable, dataset, digest, key)
        warm_up(program.manifest, feed, settings)
        meter = EnergyMeter(find_sensor())  # looking for it takes memory that is not the program's
        keeper = _session_keeper(meter, runnable, request)
        keeper.write()  # no session of an older run stays, and what writing needs is in memory before it is measured
        growth = _Growth.from_here()
        with LocalEngine(
            program, threads=request.threads, page_directory=folder.path, reserve_bytes=limits.reserve_bytes
        ) as engine:
            governor = Governor(engine, _beginning(runnable, folder, limits), limits.others)
            try:
                with meter:
                    outcome = train(
                        engine,
                        feed,
                        _that_stay_finite(settings, engine),
                        out=folder.path,
                        callbacks=(keeper, *request.callbacks),
                        resume=request.resume,
                        governor=governor,
                    )
            finally:
                keeper.write()
            test = evaluate(engine, feed, settings, TEST) if dataset.evaluation is not None else {}
            # A GPU's driver takes memory of this process that is not the program's.
            process_peak = growth.bytes(engine) if not program.manifest.gpu_api else None
            report = _report(engine, runnable, request, outcome, governor.periods(), process_peak)
            _write_model(engine, runnable, request, dataset, key)
            # Last: nothing of it may count as the program's memory.
            keep_learned(
                engine,
                feed,
                settings,
                dataset,
                folder.path,
                key=key,
                augmented=lambda: _augmented(runnable, request, dataset),
            )
        if engine.artifact != program:
            engine.artifact.copy_to(folder.program)  # `export` ships the plan that the run ended with
        best = outcome.progress.best
        history = read_history(folder.path / LOG, best_step=best.step if best is not None else None)
        report = replace(
            report,
            **_kept(outcome, settings),
            losses=history.losses,
            loss_steps=history.loss_steps,
            validations=history.validations,
            target_scaling=None if dataset.reading.target.is_identity else dataset.reading.target,
            evaluated_part=TEST if dataset.test is not None else VALIDATION,
            test=test or {},
            sessions=keeper.sessions,
            seconds_per_step=outcome.seconds_per_step or _mean_step_seconds(keeper.sessions),
            energy=Energy.of(keeper.sessions, carbon=request.carbon, is_target_here=request.is_target_here),
        )
        write_report(report, folder.path)
    return report


def input_shapes(compiled: Compiled) -> dict[str, tuple[tuple[int, ...], str]]:
    """The model's inputs by name: shape without the batch, and type."""
    return {i["name"]: (tuple(i["shape"][1:]), str(i["dtype"])) for i in compiled.facts["inputs"]}


def _augmented(runnable: Runnable, request: RunRequest, dataset: Dataset) -> list[AugmentedExample]:
    """A few training pictures with what the first epochs made of them; none where nothing is augmented."""
    recipe = request.recipe
    shape, *_ = (shape for shape, _ in input_shapes(runnable.compiled).values())
    return augmented_examples(
        dataset,
        Conversion.of(recipe.data),
        Augmentation.of(recipe.data.augment, dataset.train),
        seed=recipe.train.seed,
        count=_SHOWN_EXAMPLES,
        shape=(shape[0], shape[1], shape[2]) if len(shape) == 3 else None,
    )


def _target_scaling(runnable: Runnable, dataset: Dataset, request: RunRequest) -> Scaling:
    """How the targets are trained. A run that goes on keeps to what it began with."""
    if request.resume and request.folder.reading.exists():
        return read_reading(request.folder, read_key(request.recipe.security.key)).target
    recipe, facts = request.recipe, runnable.compiled.facts
    scaling = scaling_of(dataset, recipe)
    if scaling.is_identity or recipe.data.scale_target != "auto":
        return scaling
    inputs, output = tuple(i["name"] for i in facts["inputs"]), facts["outputs"][0]
    with LocalEngine(runnable.program, threads=request.threads, page_directory=request.folder.path) as engine:
        conversion = conversion_of(recipe.data, runnable.program.graph)
        is_trained = is_in_units_of(dataset.train, engine, inputs=inputs, output=output, conversion=conversion)
    return Scaling() if is_trained else scaling


def _beginning(runnable: Runnable, folder: RunFolder, limits: MemoryLimits) -> Beginning:
    """What the governor starts from: the program's own rung, and those it may switch to."""
    rung = Rung.of(runnable.program, beside_bytes=runnable.plan.beside_bytes)
    return Beginning(
        folder=folder.path,
        compiled_directory=runnable.compiled.directory.resolve(),
        compiled_key=runnable.compiled.key,
        rung=rung,
        ladder=limits.ladder or Ladder.of([rung]),
        budget_bytes=limits.budget_bytes,
    )


def _fill_folder(
    folder: RunFolder, request: RunRequest, runnable: Runnable, dataset: Dataset, digest: str, key: SecretKey | None
) -> None:
    """Leaves in the folder what a run is resumed and used from. What says something of the data is encrypted."""
    texts = {
        # First, because it shows whose the rest is. Its paths are absolute: a run may be resumed from anywhere.
        folder.recipe: request.recipe.with_absolute_paths().to_json(),
        folder.data: data_text(dataset, digest),
        folder.reading: dataset.reading.to_json(),
        folder.schedules: records_text(runnable.compiled.schedules),  # a run that goes on sums in the same order
    }
    adapters = runnable.compiled.facts["adapters"]
    if adapters:
        texts[folder.adapters] = json.dumps({"adapters": adapters}, indent=1)
    for path, text in texts.items():
        with protected_file(path, key if path in (folder.data, folder.reading) else None) as file:
            file.write(sealed(text).encode())
    runnable.program.copy_to(folder.program)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """How much this process grows from a moment on."""

    baseline: Resident | None
    is_peak_ours: bool

    @classmethod
    def from_here(cls) -> _Growth:
        resident()  # what reading it takes stays, and is not the program's
        return cls(baseline=resident(), is_peak_ours=reset_peak())

    def bytes(self, engine: LocalEngine) -> int | None:
        """The most since then, of which the engine may have given something back; `None` where nobody knows."""
        if not self.is_peak_ours:
            return None
        return grown_bytes(self.baseline, given_back_bytes=engine.given_back_bytes())


def _write_model(
    engine: LocalEngine, runnable: Runnable, request: RunRequest, dataset: Dataset, key: SecretKey | None
) -> None:
    """The ONNX file with the engine's parameters in place of its own, adapters merged, and how to read data for it."""
    graph, facts = runnable.program.graph, runnable.compiled.facts
    parameters = {t.name: engine.tensor(t.name) for t in graph.by_role(Role.PARAMETER)}
    adapters = [beside_from_json(adapter) for adapter in facts["adapters"]]
    inputs = [i["name"] for i in facts["inputs"]]
    described = describe(request.recipe, dataset.reading, graph, inputs=inputs, output=facts["outputs"][0])
    write_trained_onnx(
        runnable.compiled.model,
        parameters,
        request.folder.model,
        adapters=adapters,
        key=key,
        metadata=described.to_metadata(),
        scaling=dataset.reading.target,
        output=facts["outputs"][0],
        release=engine.release,
    )


def _session_keeper(meter: EnergyMeter, runnable: Runnable, request: RunRequest) -> SessionKeeper:
    path = request.folder.sessions
    return SessionKeeper(
        path,
        read_sessions(path) if request.resume else (),
        meter,
        joules_per_step=runnable.plan.joules * request.recipe.train.accumulate,
    )


def _mean_step_seconds(sessions: tuple[Session, ...]) -> float | None:
    """For a session that had no step left to take."""
    steps = sum(session.steps for session in sessions)
    return sum(session.step_seconds for session in sessions) / steps if steps else None


def _kept(outcome: TrainOutcome, settings: TrainSettings) -> dict[str, Any]:
    """Which epoch's parameters the engine holds, and why; nothing to say where there was no validation."""
    best = outcome.progress.best
    if best is None:
        return {}
    if not outcome.holds_best:
        return {"kept_because": f"the last parameters: those of epoch {best.epoch}, the best, are lost"}
    reason = reason_to_keep(best, metric=settings.monitor, higher_is_better=settings.monitor_rises)
    return {"kept_epoch": best.epoch, "kept_because": reason}


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
        loss_options=loss_options_of(recipe),
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
        target=dataset.reading.target,
        resume_command=f"edgetrain fit {recipe.name} --resume --out {shlex.quote(str(folder.path))}",
    )


def _that_stay_finite(settings: TrainSettings, engine: LocalEngine) -> TrainSettings:
    """The settings with what no update may ruin: of parameters and optimizer state all that begins as numbers."""
    tensors = engine.artifact.manifest.tensors
    saved = tuple(name for name, tensor in tensors.items() if tensor.role in SAVED_ROLES)
    return replace(settings, finite_tensors=finite_tensors(engine, saved))


def _sha256_of_saved(engine: LocalEngine) -> str:
    digest = hashlib.sha256()
    saved = engine.saved
    for start in range(0, len(saved), _PIECE_BYTES):
        digest.update(saved[start : start + _PIECE_BYTES])
        engine.release()
    return digest.hexdigest()


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
        losses=(),  # read when nothing is measured any more
        best_step=progress.best.step if progress.best is not None else None,
        model_sha256=file_sha256(compiled.model),
        program_sha256=program.identity,
        parameters_sha256=_sha256_of_saved(engine),
        target=request.target,
        ran_on=request.ran_on,
        threads=threads,
        seed=recipe.train.seed,
        versions=dict(program.manifest.versions),
        recipe=recipe_data,
        kernels=summary([record.choice for record in compiled.schedules.values()], compiled.trials),
        traffic=compiled.traffic,
    )
