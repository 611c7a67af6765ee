"""The stages of a job, each a type with one verb to the next: compile → `plan` → `build` → run.

    compiled = compile_job(job)      # CompiledJob: the training graph and its kernels
    planned = compiled.plan()        # PlannedJob: what is kept, recomputed or paged, and where everything lies
    built = planned.build()          # BuiltJob: the program, linked

TVM is used by the first, in another process.
"""

from __future__ import annotations

import dataclasses
import functools
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
from edgetrain.pipeline.job import (
    Job,
    compile_request,
    costs_of,
    effective_budget,
    encrypts_pages,
    planning_options,
    storage_of,
    threads_of,
    trial_terms,
)
from edgetrain.planner import dump as plan_dump
from edgetrain.planner.compare import Comparison, compare_solvers
from edgetrain.planner.make_plan import CostsByFunction, make_plan, smallest_budget, smallest_plan, try_plan
from edgetrain.planner.plan import Plan, ProgramMemory
from edgetrain.planner.sweep import SweepPoint, sweep
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.program.process_memory import needed_bytes, program_memory
from edgetrain.progress import silent
from edgetrain.run.files.report import RunReport
from edgetrain.run.limits.ladder import Ladder, Rung, ladder_budgets
from edgetrain.targets.device import Device
from edgetrain.targets.opencl import require_opencl
from edgetrain.units import Bytes, show_bytes


def compile_job(job: Job, *, with_kernels: bool = True, batches: int = 0) -> CompiledJob:
    """The ONNX file as a training graph, its kernels compiled for the target and for this host.

    `batches` is the length of the run that it is for, where the target is this machine: schedules that others found
    are tried first, as far as such a run is worth it. With none they are not used.
    """
    if with_kernels and job.device.gpu is not None:
        require_opencl()  # before minutes are spent on what cannot run
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
    larger_by: int = 0  # bytes that a linked library of these kernels was found to need beyond the estimate

    def asking(self, **changes: Any) -> CompiledJob:
        """The same kernels for a job that asks the planner for something else: another budget, another solver."""
        return dataclasses.replace(self, job=dataclasses.replace(self.job, **changes))

    @property
    def graph(self) -> graph_ir.TrainGraph:
        return self.compiled.graph

    @property
    def costs(self) -> CostsByFunction:
        return costs_of(self.job, self.graph)

    @property
    def beside(self) -> ProgramMemory:
        """What the process needs beside the arena."""
        job = self.job
        return program_memory(
            self.graph, job.device, threads_of(job), larger_by=self.larger_by, encrypts_pages=encrypts_pages(job)
        )

    def plan(self) -> PlannedJob:
        """Which activations are kept, recomputed or paged, and where everything lies. Raises `PlanInfeasibleError`."""
        job = self.job
        plan = make_plan(
            self.graph,
            effective_budget(job),
            self.costs,
            solver=job.solver,
            storage=storage_of(job),
            options=planning_options(job),
            beside=self.beside,
            progress=job.progress or silent,
        )
        return PlannedJob(job=job, compiled=self.compiled, plan=plan, larger_by=self.larger_by)

    def smallest_bytes(self) -> Bytes:
        """The smallest budget that works."""
        job = self.job
        return smallest_budget(
            self.graph,
            self.costs,
            solver=job.solver,
            storage=storage_of(job),
            beside=self.beside,
            progress=job.progress or silent,
        )

    def compare(self) -> Iterator[Comparison]:
        """Every solver's answer to the same question."""
        job = self.job
        return compare_solvers(
            self.graph,
            effective_budget(job),
            self.costs,
            storage=storage_of(job),
            options=job.planning,
            beside=self.beside,
        )

    def sweep(self) -> Iterator[SweepPoint]:
        """What a step costs over the memory budget, smallest first."""
        job = self.job
        return sweep(
            self.graph,
            self.costs,
            solver=job.solver,
            storage=storage_of(job),
            options=job.planning,
            beside=self.beside,
        )

    def ladder(self) -> Ladder:
        """Plans from the smallest that works to the one that keeps everything, each linked. Raises as `plan`."""
        job, budget, costs = self.job, effective_budget(self.job), self.costs
        plan_of = functools.partial(
            try_plan,
            self.graph,
            costs=costs,
            solver=job.solver,
            storage=storage_of(job),
            options=job.planning,
            beside=self.beside,
        )
        least = smallest_plan(
            self.graph,
            budget,
            costs,
            solver=job.solver,
            storage=storage_of(job),
            options=job.planning,
            beside=self.beside,
        )
        plans = [least]
        most_bytes = (least.keep_all_bytes or least.peak_bytes) + self.beside.resident_bytes
        for memory_bytes in ladder_budgets(least.needed_bytes, most_bytes)[1:]:
            plan = plan_of(dataclasses.replace(budget, memory_bytes=Bytes(memory_bytes)))
            plans += [plan] if plan is not None else []
        ladder = Ladder.of(PlannedJob(job=job, compiled=self.compiled, plan=plan).rung() for plan in plans)
        sizes = ", ".join(show_bytes(rung.needed_bytes) for rung in ladder.rungs)
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
    larger_by: int = 0

    def build(self) -> BuiltJob:
        """The program that runs here; for another target also the one that runs there, from the same plan."""
        job = self.job
        if not job.target.is_host:
            self._build_for_target()
        program = self._program(job.runs_on)
        excess_bytes = self._excess_bytes(program)
        if excess_bytes > 0:
            job.inform(f"the program is {show_bytes(excess_bytes)} larger than planned; planning again")
            compiled = CompiledJob(job=job, compiled=self.compiled, larger_by=self.larger_by + excess_bytes)
            return compiled.plan().build()
        return BuiltJob(job=job, compiled=self.compiled, plan=self.plan, program=program)

    def _program(self, device: Device) -> Artifact:
        job = self.job
        return build_program(self.compiled, self.plan, device, cache=job.cache, encrypts_pages=encrypts_pages(job))

    def _excess_bytes(self, program: Artifact) -> int:
        """By how much the linked program would exceed the budget. Code in flash does not count."""
        budget_bytes = self.plan.budget.memory_bytes
        if budget_bytes is None or not self.plan.beside_bytes:
            return 0
        return needed_bytes(program, threads_of(self.job)) - budget_bytes

    def _build_for_target(self) -> None:
        job, name = self.job, self.job.target.name
        try:
            foreign = self._program(job.device)
            job.inform(f"compiled for {name}: {foreign.directory}")
            if encrypts_pages(job) and foreign.manifest.page_file_bytes > 0 and not foreign.manifest.encrypts_pages:
                job.notify(f"{name}: it has no page file; what the application stores in its place is not encrypted")
        except DeviceError as error:  # its kernels are compiled; only a vendor's linker is missing here
            job.notify(f"{name}: {error.what}; {error.fix}")
        if job.target.note:
            job.notify(f"{name}: {job.target.note}")
        job.notify(f"the plan for {name} runs on this host; times are this host's")

    def rung(self) -> Rung:
        """The plan as a program that a run of the same kernels can switch to. It only links: TVM has done its part."""
        program = self._program(self.job.runs_on)
        return Rung.of(program, beside_bytes=self.plan.beside_bytes)


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
        stage.program.copy_to(folder / "4-program", is_shared=True)
    if report is not None:
        (folder / "5-report.json").write_text(report.to_json(), encoding="utf-8")
