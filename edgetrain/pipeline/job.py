"""What the user asked for, in the words of each stage that has to do it."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgetrain.compiler.client import Progress
from edgetrain.compiler.compile import CodegenRequest, CompileRequest, ModelSource
from edgetrain.compiler.schedules import Choices, ScheduleStores
from edgetrain.compiler.search.trials import Origin, Trials, TrialTerms
from edgetrain.cost.analytic import DeviceCosts, StorageCost, analytic_costs_by_function
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity
from edgetrain.cost.measured import SecondsByFunction, measured_costs
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph import ir as graph_ir
from edgetrain.graph.contribution import Contribution
from edgetrain.graph.options import LoraOptions, OptimizerOptions, SparseOptions, TrainOptions
from edgetrain.locate import schedules_dir, user_cache_dir, uses_seed
from edgetrain.planner.make_plan import CostsByFunction
from edgetrain.planner.plan import Budget
from edgetrain.planner.solvers.options import USUAL, SolverOptions
from edgetrain.recipes import Recipe
from edgetrain.run.limits.broker import Share
from edgetrain.run.loop.settings import loss_options_of
from edgetrain.targets.host import cache_bytes, machine_id
from edgetrain.targets.profile import HOST, Target, load_target
from edgetrain.units import Bytes, parse_bytes, show_bytes
from edgetrain_tuner.cache.entry import Target as ScheduleTarget
from edgetrain_tuner.cache.levels import SEED_FOLDER

Notify = Callable[[str], None]


NO_LIMIT = Budget()


def say_nothing(_line: str) -> None:
    """Says nothing."""


def user_stores() -> ScheduleStores:
    """The user's schedules, with those that came with edgetrain unless they are switched off."""
    return ScheduleStores(folder=schedules_dir(), seed_folder=SEED_FOLDER if uses_seed() else None)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the user asked for: a recipe, on a target, inside a budget."""

    recipe: Recipe
    target: Target
    budget: Budget = NO_LIMIT
    solver: str = "greedy"
    planning: SolverOptions = USUAL  # what is minimised, and how long an exact solver may search
    threads: int | None = None  # None: all of the host's cores
    cache: BuildCache = field(default_factory=lambda: BuildCache(user_cache_dir() / "builds"))
    stores: ScheduleStores | None = field(default_factory=user_stores)
    schedules: Choices | None = None  # None: the best known ones
    trials: Trials = field(default_factory=Trials)  # of schedules that were not measured on this machine
    tool: str = "edgetrain"  # as the schedule cache names who found something; with a version where that is known
    adapt: bool = False  # follow what the system says about its memory
    share: Share | None = None  # one budget for several jobs
    carbon: CarbonIntensity = WORLD_AVERAGE
    op_seconds: SecondsByFunction | None = None  # what each op takes, from `with_measured_times`
    contribution: Contribution | None = None  # update.mode = "sparse": from `with_contribution`
    progress: Progress | None = None
    notify: Notify = say_nothing  # what changes how the result is to be read
    inform: Notify = say_nothing  # what is nice to know


def effective_budget(job: Job) -> Budget:
    """The user's budget, never more than the device has; another device's memory is its budget by default."""
    asked, has = job.budget.memory_bytes, job.target.memory_bytes
    if asked is None:
        return job.budget if job.target.is_host else dataclasses.replace(job.budget, memory_bytes=has)
    if asked > has:
        job.notify(f"{job.target.name} has {show_bytes(has)}: planning for that, not {show_bytes(asked)}")
    return dataclasses.replace(job.budget, memory_bytes=Bytes(min(asked, has)))


def planning_options(job: Job) -> SolverOptions:
    """What the job says about planning. Governed, a run takes what there is: it gives back when asked."""
    is_governed = job.adapt or job.share is not None
    return dataclasses.replace(job.planning, thrift_share=0.0) if is_governed else job.planning


def costs_of(job: Job, graph: graph_ir.TrainGraph) -> CostsByFunction:
    """What each op costs: modelled from the target's profile, with measured times where the job has them."""
    modelled = analytic_costs_by_function(graph, device_costs(job.target))
    return measured_costs(modelled, job.op_seconds) if job.op_seconds is not None else modelled


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


def compile_request(job: Job, *, with_kernels: bool) -> CompileRequest:
    """What the compiler is asked for; with kernels, those for the target and for this host."""
    codegen = job.target.codegen
    targets = (job.target,) if job.target.is_host else (job.target, load_target(HOST))
    return CompileRequest(
        model=model_source(job.recipe),
        options=train_options(job.recipe, job.contribution),
        vector_bits=codegen.vector_bits,
        vector_registers=codegen.vector_registers,
        cores=codegen.cores,
        codegens=tuple(codegen_of(target) for target in targets) if with_kernels else (),
        tuned_for=tuned_for(job.target),
        schedules=job.schedules,
    )


def trial_terms(job: Job, *, may_try: bool, batches: int | None = None) -> TrialTerms | None:
    """How schedules of others come to be used; None for a target that is not this machine, where none can be tried.

    `batches` is the length of the run that they are tried for, if it is for one.
    """
    if not job.target.is_host:
        return None
    return TrialTerms(
        origin=Origin(
            machine=machine_id(),
            today=datetime.date.today().isoformat(),
            model=job.recipe.name,
            tool=job.tool,
        ),
        threads=job.threads or job.target.codegen.cores,
        trials=job.trials if may_try else dataclasses.replace(job.trials, seconds=0.0),
        device=device_costs(job.target),
        batches=batches,
    )


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
        latency_s=storage.latency_s,
        overlaps=storage.overlaps,
    )


def codegen_of(target: Target) -> CodegenRequest:
    codegen = target.codegen
    features = tuple(f for f in codegen.features.split(",") if f)
    return CodegenRequest(
        name=target.name, triple=codegen.triple, cpu=codegen.cpu, features=features, cores=codegen.cores
    )


# What LLVM's triples begin with, as the schedule cache calls it.
_ISAS: Mapping[str, str] = {
    "x86_64": "x86-64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "arm": "arm",
    "thumb": "arm",
    "riscv64": "riscv64",
}


def tuned_for(target: Target) -> ScheduleTarget | None:
    """The target as the schedule cache knows it; None for an instruction set that it does not know."""
    codegen = target.codegen
    architecture = (codegen.triple or platform.machine()).partition("-")[0]
    isa = next((isa for name, isa in _ISAS.items() if architecture.startswith(name)), None)
    if isa is None:
        return None
    return ScheduleTarget(
        isa=isa,
        cpu=codegen.cpu,
        vector_bits=codegen.vector_bits,
        vector_registers=codegen.vector_registers,
        cores=codegen.cores,
        cache_bytes=cache_bytes() if target.is_host else 0,
    )
