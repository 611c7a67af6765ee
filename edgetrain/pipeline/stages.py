"""The stages of a job, each a type with one verb to the next: compile → `plan` → `build` → run.

    compiled = compile_job(job)      # CompiledJob: the training graph and its kernels
    planned = compiled.plan()        # PlannedJob: what is kept, recomputed or paged, and where everything lies
    built = planned.build()          # BuiltJob: the program, linked

TVM is used by the first, in another process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.compiler.compile import compile_graph
from edgetrain.compiler.compiled import Compiled
from edgetrain.errors import DeviceError
from edgetrain.graph import ir as graph_ir
from edgetrain.graph.ir import STEP
from edgetrain.graph.update_report import UpdateReport, update_report
from edgetrain.pipeline.job import Job, compile_request, costs_of, effective_budget, planning_options, trial_terms
from edgetrain.planner import dump as plan_dump
from edgetrain.planner.compare import Comparison, compare_solvers
from edgetrain.planner.make_plan import CostsByFunction, make_plan, smallest_budget, smallest_plan, try_plan
from edgetrain.planner.plan import Plan
from edgetrain.planner.sweep import SweepPoint, sweep
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.progress import silent
from edgetrain.run.files.report import RunReport
from edgetrain.run.limits.ladder import Ladder, Rung, ladder_budgets
from edgetrain.targets.profile import HOST, load_target
from edgetrain.units import Bytes, show_bytes


def compile_job(job: Job, *, with_kernels: bool = True, batches: int = 0) -> CompiledJob:
    """The ONNX file as a training graph, its kernels compiled for the target and for this host.

    `batches` is the length of the run that it is for, where the target is this machine: schedules that others found
    are tried first, as far as such a run is worth it. With none they are not used.
    """
    request = compile_request(job, with_kernels=with_kernels)
    terms = trial_terms(job, may_try=batches > 0 and with_kernels, batches=batches)
    compiled = compile_graph(request, cache=job.cache, stores=job.stores, terms=terms, progress=job.progress)
    for line in compiled.facts.get("warnings", ()):
        job.notify(line)
    return CompiledJob(job=job, compiled=compiled)


@dataclass(frozen=True, kw_only=True)
class CompiledJob:
    """A job with its training graph, whose ops are kernels that are compiled."""

    job: Job
    compiled: Compiled

    def asking(self, **changes: Any) -> CompiledJob:
        """The same kernels for a job that asks the planner for something else: another budget, another solver."""
        return dataclasses.replace(self, job=dataclasses.replace(self.job, **changes))

    @property
    def graph(self) -> graph_ir.TrainGraph:
        return self.compiled.graph

    @property
    def costs(self) -> CostsByFunction:
        return costs_of(self.job, self.graph)

    def plan(self) -> PlannedJob:
        """Which activations are kept, recomputed or paged, and where everything lies. Raises `PlanInfeasibleError`."""
        job = self.job
        plan = make_plan(
            self.graph,
            effective_budget(job),
            self.costs,
            solver=job.solver,
            storage=job.device.storage,
            options=planning_options(job),
            progress=job.progress or silent,
        )
        return PlannedJob(job=job, compiled=self.compiled, plan=plan)

    def smallest_bytes(self) -> Bytes:
        """The smallest budget that works."""
        job = self.job
        return smallest_budget(
            self.graph,
            self.costs,
            solver=job.solver,
            storage=job.device.storage,
            progress=job.progress or silent,
        )

    def compare(self) -> Iterator[Comparison]:
        """Every solver's answer to the same question."""
        job = self.job
        return compare_solvers(
            self.graph, effective_budget(job), self.costs, storage=job.device.storage, options=job.planning
        )

    def sweep(self) -> Iterator[SweepPoint]:
        """What a step costs over the memory budget, smallest first."""
        job = self.job
        return sweep(self.graph, self.costs, solver=job.solver, storage=job.device.storage, options=job.planning)

    def ladder(self) -> Ladder:
        """Plans from the smallest that works to the one that keeps everything, each linked. Raises as `plan`."""
        job, budget, costs = self.job, effective_budget(self.job), self.costs
        storage, options = job.device.storage, job.planning
        least = smallest_plan(self.graph, budget, costs, solver=job.solver, storage=storage, options=options)
        plans = [least]
        for memory_bytes in ladder_budgets(least.peak_bytes, least.keep_all_bytes or least.peak_bytes)[1:]:
            wanted = dataclasses.replace(budget, memory_bytes=Bytes(memory_bytes))
            plan = try_plan(self.graph, wanted, costs, solver=job.solver, storage=storage, options=options)
            plans += [plan] if plan is not None else []
        ladder = Ladder.of(PlannedJob(job=job, compiled=self.compiled, plan=plan).rung() for plan in plans)
        sizes = ", ".join(show_bytes(rung.planned_peak_bytes) for rung in ladder.rungs)
        job.inform(f"plans that the run can switch to: {sizes}")
        return ladder

    def update_report(self) -> UpdateReport:
        """What the update mode trains, and what that costs."""
        seconds = {name: cost.seconds for name, cost in self.costs[STEP].items()}
        return update_report(self.graph, self.job.recipe.update.mode, self.compiled.facts["trained"], seconds)


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A compiled job with the plan that it runs by."""

    job: Job
    compiled: Compiled
    plan: Plan

    def build(self) -> BuiltJob:
        """The program that runs here; for another target also the one that runs there, from the same plan."""
        job = self.job
        if not job.target.is_host:
            self._build_for_target()
        program = build_program(self.compiled, self.plan, load_target(HOST).device, cache=job.cache)
        return BuiltJob(job=job, compiled=self.compiled, plan=self.plan, program=program)

    def _build_for_target(self) -> None:
        job, name = self.job, self.job.target.name
        try:
            foreign = build_program(self.compiled, self.plan, job.device, cache=job.cache)
            job.inform(f"compiled for {name}: {foreign.directory}")
        except DeviceError as error:  # its kernels are compiled; only a vendor's linker is missing here
            job.notify(f"{name}: {error.what}; {error.fix}")
        if job.target.note:
            job.notify(f"{name}: {job.target.note}")
        job.notify(f"the plan for {name} runs on this host; times are this host's")

    def rung(self) -> Rung:
        """The plan as a program that a run of the same kernels can switch to. It only links: TVM has done its part."""
        return Rung.of(build_program(self.compiled, self.plan, load_target(HOST).device, cache=self.job.cache))


@dataclass(frozen=True, kw_only=True)
class BuiltJob:
    """A planned job with its program."""

    job: Job
    compiled: Compiled
    plan: Plan
    program: Artifact


def dump_stages(folder: Path, stage: PlannedJob | BuiltJob, report: RunReport | None = None) -> None:
    """Writes the output of every stage so far under its number and name."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = stage.compiled.graph
    costs = costs_of(stage.job, graph)
    plain = {f: {op: dataclasses.asdict(c) for op, c in by_op.items()} for f, by_op in costs.items()}
    (folder / "1-graph.json").write_text(graph_ir.to_json(graph), encoding="utf-8")
    (folder / "2-costs.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    (folder / "3-plan.json").write_text(plan_dump.to_json(stage.plan), encoding="utf-8")
    if isinstance(stage, BuiltJob):
        stage.program.copy_to(folder / "4-program")
    if report is not None:
        (folder / "5-report.json").write_text(report.to_json(), encoding="utf-8")
