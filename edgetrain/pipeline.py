"""The product on one screen: model → graph → plan → program → run, five calls.

Each stage takes the previous one's result and nothing else that changes, so any stage can be tested, dumped or
started from a dump alone. TVM is used inside `compile_graph` only, in another process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edgetrain.cost.analytic import DeviceCosts, StorageCost, analytic_costs_by_function
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity
from edgetrain.cost.measured import SecondsByFunction, measured_costs
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset
from edgetrain.errors import DeviceError, PlanInfeasibleError, UsageError, WayOut
from edgetrain.graph import ir as graph_ir
from edgetrain.graph.contribution import Contribution
from edgetrain.graph.options import LoraOptions, OptimizerOptions, SparseOptions, TrainOptions
from edgetrain.graph.update_report import UpdateReport, update_report
from edgetrain.locate import user_cache_dir
from edgetrain.plan import dump as plan_dump
from edgetrain.plan.compare import Comparison, compare_solvers
from edgetrain.plan.planner import CostsByFunction, make_plan, smallest_plan, try_plan
from edgetrain.plan.schedule import Budget, Plan
from edgetrain.plan.solvers.options import SolverOptions, silent
from edgetrain.plan.sweep import SweepPoint, sweep
from edgetrain.plan.ways_out import Variant, find_ways_out
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.program.cache import BuildCache
from edgetrain.program.compile import CodegenRequest, Compiled, CompileRequest, ModelSource, Progress, compile_graph
from edgetrain.recipes import Recipe, UpdateSection
from edgetrain.run.broker import Share
from edgetrain.run.calibration import Calibration, scores_from_gradients
from edgetrain.run.callbacks import Callback
from edgetrain.run.check import fill_synthetic
from edgetrain.run.execute import RunFolder, execute
from edgetrain.run.feed import DatasetFeed
from edgetrain.run.labels import with_fitting_labels
from edgetrain.run.ladder import Ladder, Rung, ladder_budgets
from edgetrain.run.limits import open_limits
from edgetrain.run.local import LocalEngine
from edgetrain.run.profile import profile
from edgetrain.run.report import RunReport
from edgetrain.run.settings import loss_options_of
from edgetrain.targets import HOST, Target, load_target
from edgetrain.units import Bytes, parse_bytes, show_bytes

log = logging.getLogger(__name__)

Notify = Callable[[str], None]
NO_LIMIT = Budget()


def _silent(_line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the user asked for: a recipe, on a target, inside a budget."""

    recipe: Recipe
    target: Target
    budget: Budget = NO_LIMIT
    solver: str = "greedy"
    planning_s: float = 30.0  # how long an exact solver may search
    threads: int | None = None  # None: all of the host's cores
    cache: BuildCache = field(default_factory=lambda: BuildCache(user_cache_dir() / "builds"))
    adapt: bool = False  # follow what the system says about its memory
    share: Share | None = None  # one budget for several jobs
    carbon: CarbonIntensity = WORLD_AVERAGE
    op_seconds: SecondsByFunction | None = None  # what each op takes, from `with_measured_times`
    contribution: Contribution | None = None  # update.mode = "sparse": from `with_contribution`
    progress: Progress | None = None
    notify: Notify = _silent  # what changes how the result is to be read
    inform: Notify = _silent  # what is nice to know


def fit(
    job: Job,
    out: Path,
    *,
    dataset: Dataset | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    dump: Path | None = None,
) -> RunReport:
    """Trains, and leaves checkpoints, log, report, program and the trained model in `out`.

    Raises any `EdgetrainError`; whatever was saved before stays good.
    """
    data = dataset if dataset is not None else load_dataset(job.recipe.data)  # first: it fails fastest
    job = with_contribution(job, data)
    compiled = compile_stage(job)
    job.inform(report_update(job, compiled).to_text())
    ladder = ladder_stage(job, compiled) if job.adapt or job.share is not None else None
    budget = effective_budget(job)
    with open_limits(
        ladder, adapt=job.adapt, share=job.share, budget_bytes=budget.memory_bytes, folder=out, notify=job.notify
    ) as opened:
        within = dataclasses.replace(budget, memory_bytes=opened.begin_with(budget.memory_bytes))
        job = dataclasses.replace(job, budget=within)
        plan = plan_or_ways_out(job, compiled)
        program = program_stage(job, compiled, plan)
        report = execute(
            program,
            compiled,
            data,
            job.recipe,
            folder=RunFolder(out),
            plan=plan,
            budget_bytes=budget.memory_bytes,
            target=job.target.name,
            threads=job.threads or load_target(HOST).codegen.cores,
            is_target_here=job.target.is_host,
            carbon=job.carbon,
            callbacks=callbacks,
            resume=resume,
            ladder=ladder,
            limits=opened.limits,
            reserve_bytes=plan.keep_all_bytes or plan.peak_bytes,
        )
    if dump is not None:
        dump_stages(dump, job, compiled, plan, program, report)
    return report


def compile_stage(job: Job, *, with_kernels: bool = True) -> Compiled:
    """Model and graph: the ONNX file as a training graph, its kernels compiled for the target and for this host."""
    codegen = job.target.codegen
    request = CompileRequest(
        model=model_source(job.recipe),
        options=train_options(job.recipe, job.contribution),
        vector_bits=codegen.vector_bits,
        vector_registers=codegen.vector_registers,
        cores=codegen.cores,
        codegens=tuple(codegen_of(t) for t in _targets_to_build(job.target)) if with_kernels else (),
    )
    return compile_graph(request, cache=job.cache, progress=job.progress)


def plan_stage(job: Job, compiled: Compiled) -> Plan:
    """Which activations are kept, recomputed or paged, and where everything lies. Raises `PlanInfeasibleError`."""
    budget = effective_budget(job)
    costs = costs_of(job, compiled.graph)
    return make_plan(
        compiled.graph,
        budget,
        costs,
        solver=job.solver,
        storage=storage_cost(job.target),
        options=SolverOptions(time_limit_s=job.planning_s),
        progress=job.progress or silent,
    )


def plan_or_ways_out(job: Job, compiled: Compiled) -> Plan:
    """`plan_stage`; where no plan fits the memory, the error says what would: each way planned for this very model."""
    try:
        return plan_stage(job, compiled)
    except PlanInfeasibleError as error:
        if error.smallest_bytes is None:
            raise
        job.inform("nothing fits: looking for what would")
        raise error.with_ways_out(_ways_out(job, error.smallest_bytes)) from None


def _ways_out(job: Job, smallest_bytes: int) -> tuple[WayOut, ...]:
    recipe = job.recipe

    def build(variant: Variant) -> tuple[graph_ir.TrainGraph, CostsByFunction]:
        train = dataclasses.replace(recipe.train, batch=variant.batch, accumulate=variant.accumulate)
        update = dataclasses.replace(recipe.update, mode=variant.update_mode)
        changed = dataclasses.replace(job, recipe=dataclasses.replace(recipe, train=train, update=update))
        graph = compile_stage(dataclasses.replace(changed, progress=None), with_kernels=False).graph
        return graph, analytic_costs_by_function(graph, device_costs(job.target))

    return find_ways_out(
        Variant(batch=recipe.train.batch, accumulate=recipe.train.accumulate, update_mode=recipe.update.mode),
        effective_budget(dataclasses.replace(job, notify=_silent)),
        smallest_bytes,
        build,
        device=job.target.name,
        device_bytes=job.target.memory_bytes,
        solver=job.solver,
        storage=storage_cost(job.target),
    )


def compare_stage(job: Job, compiled: Compiled) -> Iterator[Comparison]:
    """Every solver's answer to the same question."""
    return compare_solvers(
        compiled.graph,
        effective_budget(job),
        costs_of(job, compiled.graph),
        storage=storage_cost(job.target),
        options=SolverOptions(time_limit_s=job.planning_s),
    )


def sweep_stage(job: Job, compiled: Compiled) -> Iterator[SweepPoint]:
    """What a step costs over the memory budget, smallest first."""
    return sweep(
        compiled.graph,
        costs_of(job, compiled.graph),
        solver=job.solver,
        storage=storage_cost(job.target),
        options=SolverOptions(time_limit_s=job.planning_s),
    )


def program_stage(job: Job, compiled: Compiled, plan: Plan) -> Artifact:
    """The program that runs here; for another target also the one that runs there, from the same plan."""
    if not job.target.is_host:
        try:
            foreign = build_program(compiled, plan, codegen_of(job.target), cache=job.cache)
            job.inform(f"compiled for {job.target.name}: {foreign.directory}")
        except DeviceError as error:  # its kernels are compiled; only a vendor's linker is missing here
            job.notify(f"{job.target.name}: {error.what}; {error.fix}")
        if job.target.note:
            job.notify(f"{job.target.name}: {job.target.note}")
        job.notify(f"no {job.target.name} reachable: running its plan on this host; times are this host's")
    return build_program(compiled, plan, codegen_of(load_target(HOST)), cache=job.cache)


def rung_stage(job: Job, compiled: Compiled, plan: Plan) -> Rung:
    """A plan as a program that a run of the same kernels can go over to. It only links: TVM has done its part."""
    return Rung.of(build_program(compiled, plan, codegen_of(load_target(HOST)), cache=job.cache))


def ladder_stage(job: Job, compiled: Compiled) -> Ladder:
    """Plans from the smallest that works to the one that keeps everything, each compiled. Raises as `plan_stage`."""
    graph = compiled.graph
    budget = effective_budget(job)
    costs = costs_of(job, graph)
    storage, options = storage_cost(job.target), SolverOptions(time_limit_s=job.planning_s)
    least = smallest_plan(graph, budget, costs, solver=job.solver, storage=storage, options=options)
    plans = [least]
    for memory_bytes in ladder_budgets(least.peak_bytes, least.keep_all_bytes or least.peak_bytes)[1:]:
        wanted = dataclasses.replace(budget, memory_bytes=Bytes(memory_bytes))
        plan = try_plan(graph, wanted, costs, solver=job.solver, storage=storage, options=options)
        plans += [plan] if plan is not None else []
    ladder = Ladder.of(rung_stage(job, compiled, plan) for plan in plans)
    sizes = ", ".join(show_bytes(rung.planned_peak_bytes) for rung in ladder.rungs)
    job.inform(f"plans to go over to: {sizes}")
    return ladder


def with_choice(job: Job) -> Job:
    """The job as `fit` compiles it, for who has not loaded its data: only a sparse update needs any.

    Raises `UsageError` where it does and there is none, and as `load_dataset` does.
    """
    if job.recipe.update.mode != "sparse":
        return job
    if not job.recipe.data.source:
        raise UsageError(
            "update.mode = 'sparse' needs data to choose what to train",
            why="it measures on training batches how much each tensor would lower the loss",
            fix="add data.source=PATH",
        )
    return with_contribution(job, load_dataset(job.recipe.data))


def with_contribution(job: Job, dataset: Dataset) -> Job:
    """The job with what a sparse update needs to choose: how much each parameter would lower the loss."""
    recipe = job.recipe
    if recipe.update.mode != "sparse" or job.contribution is not None:
        return job
    count = max(2, recipe.update.calibrate)  # gradients are summed up from two batches on
    section = dataclasses.replace(recipe.train, optimizer="sgd", momentum=0.0, accumulate=count, clip_norm=0.0)
    full = dataclasses.replace(recipe, train=section, update=UpdateSection())
    calibration_job = dataclasses.replace(job, recipe=full, target=load_target(HOST), budget=NO_LIMIT)
    compiled = compile_stage(calibration_job)
    program = build_program(
        compiled, plan_stage(calibration_job, compiled), codegen_of(load_target(HOST)), cache=job.cache
    )
    calibration = Calibration(
        inputs=tuple(i["name"] for i in compiled.facts["inputs"]),
        names=tuple(compiled.facts["trained"]),
        batches=count,
        output_axes=compiled.facts["output_axes"],
    )
    dataset = with_fitting_labels(dataset, section.loss, program.graph, compiled.facts["outputs"][0])
    feed = DatasetFeed(dataset, batch=section.batch, seed=section.seed, conversion=Conversion.of(recipe.data))
    with (
        tempfile.TemporaryDirectory(prefix="edgetrain-calibration-") as pages,
        LocalEngine(program, threads=job.threads or job.target.codegen.cores, page_directory=Path(pages)) as engine,
    ):
        contribution = scores_from_gradients(engine, feed, calibration)
    log.info("scored %d tensors on %d batches", len(contribution.tensors), count)
    return dataclasses.replace(job, contribution=contribution)


def report_update(job: Job, compiled: Compiled) -> UpdateReport:
    """What the update mode trains, and what that costs."""
    costs = costs_of(job, compiled.graph)["step"]
    seconds = {name: cost.seconds for name, cost in costs.items()}
    return update_report(compiled.graph, job.recipe.update.mode, compiled.facts["trained"], seconds)


def model_source(recipe: Recipe) -> ModelSource:
    model = recipe.model
    return ModelSource(
        source=model.source,
        output=model.output,
        classes=model.classes,
        head=model.head,
        fold_batchnorm=model.batchnorm == "fold",
        seed=recipe.train.seed,
    )


def train_options(recipe: Recipe, contribution: Contribution | None = None) -> TrainOptions:
    """What the graph depends on. A sparse update needs to know what each tensor is worth."""
    train, update = recipe.train, recipe.update
    sparse = SparseOptions(
        budget_bytes=parse_bytes(update.budget) if update.budget else 0,
        scores=contribution.tensors if contribution is not None else None,
        row_scores=contribution.rows if contribution is not None else None,
    )
    return TrainOptions(
        batch=train.batch,
        loss=train.loss,
        loss_options=loss_options_of(train),
        optimizer=OptimizerOptions(
            kind=train.optimizer,
            momentum=train.momentum if train.optimizer == "sgd" else 0.0,
            weight_decay=train.weight_decay,
            beta1=train.beta1,
            beta2=train.beta2,
            epsilon=train.epsilon,
        ),
        update_mode=update.mode,
        update_names=update.names,
        update_last=update.last,
        lora=LoraOptions(rank=update.rank, alpha=update.alpha, targets=update.targets, seed=train.seed),
        sparse=sparse,
        batchnorm=recipe.model.batchnorm,
        clip_norm=train.clip_norm,
        accumulate=train.accumulate,
        input_shapes=dict(recipe.model.inputs) or None,
    )


def effective_budget(job: Job) -> Budget:
    """The user's budget, never more than the device has; another device's memory is its budget by default."""
    asked, has = job.budget.memory_bytes, job.target.memory_bytes
    if asked is None:
        return job.budget if job.target.is_host else dataclasses.replace(job.budget, memory_bytes=has)
    if asked > has:
        job.notify(f"{job.target.name} has {show_bytes(has)}: planning for that, not {show_bytes(asked)}")
    return dataclasses.replace(job.budget, memory_bytes=Bytes(min(asked, has)))


def costs_of(job: Job, graph: graph_ir.TrainGraph) -> CostsByFunction:
    """What each op costs: modelled from the target's profile, with measured times where the job has them."""
    modelled = analytic_costs_by_function(graph, device_costs(job.target))
    return measured_costs(modelled, job.op_seconds) if job.op_seconds is not None else modelled


def require_here(job: Job) -> None:
    """Raises `UsageError` unless the target is this machine: nothing else can be measured."""
    if not job.target.is_host:
        raise UsageError(
            f"kernels for {job.target.name} cannot be measured here",
            why="programs run on this machine only",
            fix="leave --calibrate out, or plan for `--target host`",
        )


def with_measured_times(job: Job, compiled: Compiled) -> Job:
    """The job planning with what each of its kernels takes on this machine."""
    with profiling_engine(job, compiled) as engine:
        return dataclasses.replace(job, op_seconds=profile(engine, compiled.graph))


@contextlib.contextmanager
def profiling_engine(job: Job, compiled: Compiled) -> Iterator[LocalEngine]:
    """The program that keeps everything and counts each kernel's seconds, on made-up data. Needs `compiled` kernels."""
    kept = plan_stage(dataclasses.replace(job, budget=NO_LIMIT), compiled)
    program = build_program(compiled, kept, codegen_of(job.target), cache=job.cache, profile=True)
    threads = job.threads or job.target.codegen.cores
    with (
        tempfile.TemporaryDirectory(prefix="edgetrain-calibrate-") as pages,
        LocalEngine(program, threads=threads, page_directory=Path(pages)) as engine,
    ):
        fill_synthetic(engine, program.graph, loss=job.recipe.train.loss, seed=0)
        yield engine


def device_costs(target: Target) -> DeviceCosts:
    return DeviceCosts(
        flops_per_s=target.flops_per_s,
        memory_bytes_per_s=target.memory_bytes_per_s,
        launch_s=target.launch_s,
        joules_per_flop=target.joules_per_flop,
        joules_per_byte=target.joules_per_byte,
    )


def storage_cost(target: Target) -> StorageCost | None:
    storage = target.storage
    if storage is None:
        return None
    return StorageCost(
        read_bytes_per_s=storage.read_bytes_per_s,
        write_bytes_per_s=storage.write_bytes_per_s,
        joules_per_byte_read=storage.joules_per_byte_read,
        joules_per_byte_written=storage.joules_per_byte_written,
    )


def codegen_of(target: Target) -> CodegenRequest:
    codegen = target.codegen
    features = tuple(f for f in codegen.features.split(",") if f)
    return CodegenRequest(
        name=target.name, triple=codegen.triple, cpu=codegen.cpu, features=features, cores=codegen.cores
    )


def _targets_to_build(target: Target) -> tuple[Target, ...]:
    return (target,) if target.is_host else (target, load_target(HOST))


def dump_stages(
    folder: Path, job: Job, compiled: Compiled, plan: Plan, program: Artifact | None, report: RunReport | None
) -> None:
    """Writes every stage's output under its number and name."""
    folder.mkdir(parents=True, exist_ok=True)
    costs = costs_of(job, compiled.graph)
    plain = {f: {op: dataclasses.asdict(c) for op, c in by_op.items()} for f, by_op in costs.items()}
    (folder / "1-graph.json").write_text(graph_ir.to_json(compiled.graph), encoding="utf-8")
    (folder / "2-costs.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    (folder / "3-plan.json").write_text(plan_dump.to_json(plan), encoding="utf-8")
    if program is not None:
        program.copy_to(folder / "4-program")
    if report is not None:
        (folder / "5-report.json").write_text(report.to_json(), encoding="utf-8")
