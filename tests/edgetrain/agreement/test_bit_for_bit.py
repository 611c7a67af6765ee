"""What must not change a bit: the plan, the number of threads, another build; and parameters that are not trained."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import small_networks as models
from benchmarks.references.trained import Batch, Trained, make_batches, same_bits
from benchmarks.references.workshop import Workshop
from edgetrain.compiler.compile import compile_graph
from edgetrain.compiler.compiled import Compiled
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.errors import PlanInfeasibleError, UsageError
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.planner.known_solvers import SOLVERS, STAND_INS
from edgetrain.planner.make_plan import least_bytes, smallest_budget
from edgetrain.planner.plan import Budget, Compute, PageIn, Plan
from edgetrain.planner.solvers import OUR_SOLVERS
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes

pytestmark = pytest.mark.compile

OPTIONS = TrainOptions(batch=4, optimizer=OptimizerOptions(kind="sgd", momentum=0.9))
# The same for all tests of the ResNet: it takes longest to compile.
RESNET_OPTIONS = TrainOptions(batch=4, optimizer=OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=1e-4))
RATE = 0.02
BATCHES = make_batches(models.BATCH_NORM_IMAGE, models.CLASSES, loss=OPTIONS.loss, size=4, seed=7, count=5)
# Free, so that paging wins over computing again.
STORAGE = Storage(
    read_bytes_per_s=1e15, write_bytes_per_s=1e15, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)


# Exact solvers take as long as their limit allows on a ResNet; they are the ones that have stand-ins.
# POET's own formulation takes 40 ops at most, fewer than any network here.
EXACT = tuple(s for s in SOLVERS if s in STAND_INS and s != "poet")
# Swapping needs somewhere to swap to.
FAST_CASES = [
    pytest.param(solver, storage, id=f"{solver}-{'recompute' if storage is None else 'page'}")
    for solver in SOLVERS
    for storage in (None, STORAGE)
    if solver not in (*STAND_INS, "keep-all") and (solver, storage) != ("swap-all", None)
]


@functools.cache
def _kept_resnet(workshop: Workshop, seed: int) -> Trained:
    """What every solver's plan of the ResNet is compared with."""
    compiled = workshop.compile(models.resnet18(), RESNET_OPTIONS)
    batches = _resnet_batches(seed)
    return workshop.train(compiled, batches, RESNET_OPTIONS, learning_rate=RATE, threads=2)


def _resnet_batches(seed: int) -> Sequence[Batch]:
    return make_batches(models.RESNET_IMAGE, models.CLASSES, loss=RESNET_OPTIONS.loss, size=4, seed=seed, count=3)


def _train(workshop: Workshop, compiled: Compiled, *, plan: Plan | None = None, threads: int = 1) -> Trained:
    return workshop.train(compiled, BATCHES, OPTIONS, learning_rate=RATE, plan=plan, threads=threads)


def _assert_same_bits(one: Trained, other: Trained) -> None:
    assert one.losses == other.losses
    assert same_bits(one.final, other.final)
    assert not same_bits(one.final, one.initial), "nothing was trained: nothing was compared"


def _recomputes(plan: Plan) -> bool:
    computed = Counter(step.op for step in plan.functions["step"].steps if isinstance(step, Compute))
    return max(computed.values()) > 1


def _pages(plan: Plan) -> bool:
    return any(isinstance(step, PageIn) for step in plan.functions["step"].steps)


def _tight_plan(workshop: Workshop, compiled: Compiled, solver: str, storage: Storage | None, *, seed: int) -> Plan:
    """A plan for a random budget below keep-all's memory."""
    keep_all = workshop.plan(compiled)
    costs = analytic_costs_by_function(compiled.graph, workshop.target.device.rates)
    least = least_bytes(compiled.graph, costs, solver=solver, storage=storage)
    rng = random.Random(seed)
    for _ in range(8):
        share = rng.uniform(0.05, 0.7)
        wanted = round(least + share * (keep_all.peak_bytes - least))
        budget = Budget(memory_bytes=Bytes(min(wanted, keep_all.peak_bytes - 1)))
        try:
            return workshop.plan(compiled, budget, solver=solver, storage=storage)
        except PlanInfeasibleError:
            continue  # the floor knows nothing of fragmentation
    raise AssertionError(f"{solver} finds no plan for any of eight budgets between its floor and keep-all's memory")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("solver", EXACT)
def test_an_exact_solvers_tight_plan_trains_to_the_same_bits_as_keeping_all(
    solver: str, seed: int, workshop: Workshop
) -> None:
    compiled = workshop.compile(models.batch_norm_cnn(), OPTIONS)
    plan = _tight_plan(workshop, compiled, solver, None, seed=seed)
    assert _recomputes(plan)
    _assert_same_bits(_train(workshop, compiled, plan=plan), _train(workshop, compiled))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("solver", "storage"), FAST_CASES)
def test_a_fast_solvers_tight_plan_of_a_resnet_trains_to_the_same_bits_as_keeping_all(
    solver: str, storage: Storage | None, seed: int, workshop: Workshop
) -> None:
    options = RESNET_OPTIONS
    compiled = workshop.compile(models.resnet18(), options)
    plan = _tight_plan(workshop, compiled, solver, storage, seed=seed)
    assert _recomputes(plan) or (storage is not None and _pages(plan))
    found = workshop.train(compiled, _resnet_batches(seed), options, learning_rate=RATE, plan=plan, threads=2)
    _assert_same_bits(found, _kept_resnet(workshop, seed))


# The model, and the shape of its input. Those that are dense, or pool at once, have nothing to plan: what they hold at
# their peak is what one op reads and writes.
MODELS: Mapping[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "batch-norm-cnn": (models.batch_norm_cnn, models.BATCH_NORM_IMAGE),
    "mobilenet": (models.mobilenet, models.MOBILENET_IMAGE),
    "transformer": (models.transformer, models.TRANSFORMER_IMAGE),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_solvers_plans_train_every_model_to_the_same_bits(name: str, workshop: Workshop) -> None:
    """A random budget for each solver; one that has no plan there says so, and is passed over."""
    make, image = MODELS[name]
    options = TrainOptions(batch=32, optimizer=OptimizerOptions(kind="adamw"))  # large enough for tensors of a page
    compiled = workshop.compile(make(), options)
    batches = make_batches(image, models.CLASSES, loss=options.loss, size=32, seed=3, count=2)
    kept = workshop.plan(compiled)
    expected = workshop.train(compiled, batches, options, learning_rate=RATE, plan=kept)
    rng = random.Random(name)
    costs = analytic_costs_by_function(compiled.graph, workshop.target.device.rates)
    least = smallest_budget(compiled.graph, costs, storage=STORAGE)
    compared: list[str] = []
    for solver in SOLVERS:
        budget = Budget(memory_bytes=Bytes(rng.randint(least, kept.peak_bytes - 1)))
        try:
            plan = workshop.plan(compiled, budget, solver=solver, storage=STORAGE)
        except (PlanInfeasibleError, UsageError):
            continue
        compared.append(solver)
        _assert_same_bits(workshop.train(compiled, batches, options, learning_rate=RATE, plan=plan), expected)
    assert "greedy" in compared
    assert "milp" in compared


def test_a_plan_with_free_storage_pages(workshop: Workshop) -> None:
    compiled = workshop.compile(models.resnet18(), RESNET_OPTIONS)
    assert _pages(_tight_plan(workshop, compiled, "greedy", STORAGE, seed=0)), "the cases above would not test paging"


def test_two_threads_compute_the_same_bits_as_one(workshop: Workshop) -> None:
    compiled = workshop.compile(models.batch_norm_cnn(), OPTIONS)
    runs = [_train(workshop, compiled, threads=threads) for threads in (1, 2, 2)]
    _assert_same_bits(runs[0], runs[1])
    _assert_same_bits(runs[1], runs[2])


def _contents(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_the_compilers_process_and_this_one_build_the_same_bytes(workshop: Workshop, tmp_path: Path) -> None:
    here = workshop.compile(models.batch_norm_cnn(), OPTIONS)
    elsewhere = Workshop(root=tmp_path)
    there = compile_graph(workshop.request(models.batch_norm_cnn(), OPTIONS), cache=elsewhere.cache)
    assert _contents(here.directory) == _contents(there.directory)
    programs = [w.build(c, w.plan(c)) for w, c in ((workshop, here), (elsewhere, there))]
    first, second = (_contents(p.directory) for p in programs)
    assert first == second
    assert len(first) > 3


MODES = {
    "head": (TrainOptions(batch=4, update_mode="head"), {"head.weight", "head.bias"}),
    "bias": (
        TrainOptions(batch=4, update_mode="bias", batchnorm="frozen"),
        {"head.bias", "norm0.bias", "norm1.bias", "norm2.bias"},
    ),
    "names": (
        TrainOptions(batch=4, update_mode="names", update_names=("conv1.*", "norm2.s*"), batchnorm="frozen"),
        {"conv1.weight", "norm2.scale"},
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_partial_update_changes_its_own_parameters_and_no_other_byte(mode: str, workshop: Workshop) -> None:
    options, chosen = MODES[mode]
    compiled = workshop.compile(models.batch_norm_cnn(), options)
    run = workshop.train(compiled, BATCHES, options, learning_rate=RATE)
    changed = {n for n in run.final if run.final[n].tobytes() != run.initial[n].tobytes()}
    statistics = {n for n in run.final if n.endswith((".mean", ".variance"))}
    assert changed == chosen | (statistics if options.batchnorm == "train" else set())


@pytest.mark.parametrize("solver", sorted(OUR_SOLVERS))
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_plan_that_leaves_parameters_in_storage_trains_to_the_same_bits(
    kind: str, solver: str, workshop: Workshop
) -> None:
    adamw = TrainOptions(batch=4, optimizer=OptimizerOptions(kind="adamw"))
    options = RESNET_OPTIONS if kind == "sgd" else adamw
    compiled = workshop.compile(models.resnet18(), options)
    batches = make_batches(models.RESNET_IMAGE, models.CLASSES, loss=options.loss, size=4, seed=1, count=3)
    kept = workshop.plan(compiled)
    budget = Budget(memory_bytes=Bytes(kept.persistent_bytes * 9 // 10))
    plan = workshop.plan(compiled, budget, solver=solver, storage=STORAGE)
    assert plan.stored, "nothing is stored: nothing was tested"
    runs = [workshop.train(compiled, batches, options, learning_rate=RATE, plan=p, threads=2) for p in (plan, None)]
    _assert_same_bits(*runs)
