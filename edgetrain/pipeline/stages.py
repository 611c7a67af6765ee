"""One call for each stage, from a job and what the stage before it left. TVM is used in `compile_graph` only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from edgetrain.compiler.compile import Compiled, compile_graph
from edgetrain.errors import DeviceError
from edgetrain.graph import ir as graph_ir
from edgetrain.graph.update_report import UpdateReport, update_report
from edgetrain.pipeline.job import (
    Job,
    codegen_of,
    compile_request,
    costs_of,
    effective_budget,
    planning_options,
    storage_cost,
    trial_terms,
)
from edgetrain.planner import dump as plan_dump
from edgetrain.planner.compare import Comparison, compare_solvers
from edgetrain.planner.make_plan import make_plan, smallest_budget, smallest_plan, try_plan
from edgetrain.planner.plan import Plan
from edgetrain.planner.solvers.options import silent
from edgetrain.planner.sweep import SweepPoint, sweep
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.run.files.report import RunReport
from edgetrain.run.limits.ladder import Ladder, Rung, ladder_budgets
from edgetrain.targets.profile import HOST, load_target
from edgetrain.units import Bytes, show_bytes


def compile_stage(job: Job, *, with_kernels: bool = True, batches: int = 0) -> Compiled:
    """Model and graph: the ONNX file as a training graph, its kernels compiled for the target and for this host.

    `batches` is the length of the run that it is for, where the target is this machine: schedules that others found
    are tried first, as far as such a run is worth it. With none they are not used.
    """
    request = compile_request(job, with_kernels=with_kernels)
    terms = trial_terms(job, may_try=batches > 0 and with_kernels, batches=batches)
    return compile_graph(request, cache=job.cache, stores=job.stores, terms=terms, progress=job.progress)


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
        options=planning_options(job),
        progress=job.progress or silent,
    )


def smallest_stage(job: Job, compiled: Compiled) -> Bytes:
    """The smallest budget that works."""
    return smallest_budget(
        compiled.graph,
        costs_of(job, compiled.graph),
        solver=job.solver,
        storage=storage_cost(job.target),
        progress=job.progress or silent,
    )


def compare_stage(job: Job, compiled: Compiled) -> Iterator[Comparison]:
    """Every solver's answer to the same question."""
    return compare_solvers(
        compiled.graph,
        effective_budget(job),
        costs_of(job, compiled.graph),
        storage=storage_cost(job.target),
        options=job.planning,
    )


def sweep_stage(job: Job, compiled: Compiled) -> Iterator[SweepPoint]:
    """What a step costs over the memory budget, smallest first."""
    return sweep(
        compiled.graph,
        costs_of(job, compiled.graph),
        solver=job.solver,
        storage=storage_cost(job.target),
        options=job.planning,
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
    storage, options = storage_cost(job.target), job.planning
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


def report_update(job: Job, compiled: Compiled) -> UpdateReport:
    """What the update mode trains, and what that costs."""
    costs = costs_of(job, compiled.graph)["step"]
    seconds = {name: cost.seconds for name, cost in costs.items()}
    return update_report(compiled.graph, job.recipe.update.mode, compiled.facts["trained"], seconds)


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
