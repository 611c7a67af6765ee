"""What the user asked for, in the words of each stage that has to do it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from edgetrain.compiler.request import CompileRequest, ModelSource
from edgetrain.compiler.schedules import Choices, ScheduleStores
from edgetrain.compiler.search.trials import Origin, Trials, TrialTerms
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity
from edgetrain.cost.measured import SecondsByFunction, measured_costs
from edgetrain.errors import UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph import ir as graph_ir
from edgetrain.graph.contribution import Contribution
from edgetrain.graph.options import LoraOptions, OptimizerOptions, SparseOptions, TrainOptions
from edgetrain.locate import schedules_dir, user_cache_dir, uses_seed
from edgetrain.planner.make_plan import CostsByFunction
from edgetrain.planner.plan import Budget
from edgetrain.planner.solvers.options import USUAL, SolverOptions
from edgetrain.progress import ReportProgress
from edgetrain.recipes import Recipe
from edgetrain.run.limits.broker import Share
from edgetrain.run.loop.settings import loss_options_of
from edgetrain.runtime.sources import MOST_THREADS
from edgetrain.targets.device import Device, Storage
from edgetrain.targets.host import machine_id
from edgetrain.targets.profile import HOST, Target, load_target
from edgetrain.units import Bytes, parse_bytes, show_bytes
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
    progress: ReportProgress | None = None
    notify: Notify = say_nothing  # what changes how the result is to be read
    inform: Notify = say_nothing  # what is nice to know

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise UsageError(
                f"a program cannot run on {self.threads} threads: it has 1 to {MOST_THREADS}",
                fix=f"ask for at most {MOST_THREADS}, or for none: then each core has one",
            )
        if self.is_governed and self.device.gpu is not None:
            raise UsageError(
                f"the memory of {self.target.name} is not shared out",
                why="--adapt and --share follow this system's memory, and a GPU's driver has its own",
                fix="leave --adapt and --share out",
            )

    @property
    def device(self) -> Device:
        """The one that trains."""
        return self.target.device

    @property
    def runs_on(self) -> Device:
        """What its program runs on: the job's own device where that is here, else this host's processor."""
        return self.device if self.device.is_here else load_target(HOST).device

    @property
    def is_governed(self) -> bool:
        """Whether its memory may change while it runs, by the system's or other jobs' needs."""
        return self.adapt or self.share is not None


def effective_budget(job: Job) -> Budget:
    """The user's budget, never more than the device has; another device's memory is its budget by default."""
    asked, has = job.budget.memory_bytes, job.device.memory_bytes
    if asked is None:
        is_unlimited = job.target.is_host and job.device.gpu is None  # a GPU's memory is less than what the system has
        return job.budget if is_unlimited else dataclasses.replace(job.budget, memory_bytes=has)
    if asked > has:
        job.notify(f"{job.target.name} has {show_bytes(has)}: planning for that, not {show_bytes(asked)}")
    return dataclasses.replace(job.budget, memory_bytes=Bytes(min(asked, has)))


def encrypts_pages(job: Job) -> bool:
    """Whether nobody may read what its program pages."""
    return bool(job.recipe.security.key)


def storage_of(job: Job) -> Storage | None:
    """Where the job's tensors are paged to.

    With a key no parameters stay there: the host would read and write them through a file that is not encrypted.
    """
    storage = job.device.storage
    if storage is None or not encrypts_pages(job):
        return storage
    return dataclasses.replace(storage, keeps_parameters=False)


def threads_of(job: Job) -> int:
    """How many threads the plan leaves stacks for: those of the device, or of this host where it runs here."""
    return job.threads or max(job.device.codegen.cores, load_target(HOST).device.codegen.cores)


def planning_options(job: Job) -> SolverOptions:
    """What the job says about planning. Governed, a run takes what there is: it gives back when asked."""
    return dataclasses.replace(job.planning, allowed_slowdown=0.0) if job.is_governed else job.planning


def costs_of(job: Job, graph: graph_ir.TrainGraph) -> CostsByFunction:
    """What each op costs: modelled from the target's profile, with measured times where the job has them."""
    modelled = analytic_costs_by_function(graph, job.device.rates)
    return measured_costs(modelled, job.op_seconds) if job.op_seconds is not None else modelled


def model_source(recipe: Recipe) -> ModelSource:
    model = recipe.model
    return ModelSource(
        source=model.source,
        output=model.output,
        classes=model.classes,
        head=model.head,
        fold_batchnorm=model.batchnorm == "fold",
        separate=model.separate,
        tie=model.tie,
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
        loss_options=loss_options_of(recipe),
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
    devices = (job.device,) if job.device.is_here else (job.device, load_target(HOST).device)
    return CompileRequest(
        model=model_source(job.recipe),
        options=train_options(job.recipe, job.contribution),
        codegen=job.device.codegen,
        gpu=job.device.gpu,
        archives={device.name: device.codegen for device in devices} if with_kernels else {},
        schedules=job.schedules,
    )


def trial_terms(job: Job, *, may_try: bool, batches: int | None = None) -> TrialTerms | None:
    """How schedules of others come to be used; None where none can be tried: for a GPU, and on another machine.

    `batches` is the length of the run that they are tried for, if it is for one.
    """
    if not job.target.is_host or job.device.gpu is not None:
        return None
    return TrialTerms(
        origin=Origin(
            machine=machine_id(),
            today=datetime.date.today().isoformat(),
            model=job.recipe.name,
            tool=job.tool,
        ),
        threads=job.threads or job.device.codegen.cores,
        trials=job.trials if may_try else dataclasses.replace(job.trials, seconds=0.0),
        rates=job.device.rates,
        batches=batches,
    )
