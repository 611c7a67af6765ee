"""The solvers behind PuLP: HiGHS in this process, CBC or another as a program, and what they answer in our words.

PuLP's `status` says optimal for any time limit; only `sol_status` tells a solution from none. HiGHS is therefore read
directly, which also gives its bound, a warm start, and new bounds without building the program again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import highspy
import pulp

from edgetrain.errors import UsageError

_THREADS = 1  # more threads find other solutions on every run
_SEED = 0
_ABSOLUTE_GAP = 1e-9  # the objective is scaled to about one


class Status(StrEnum):
    OPTIMAL = "optimal"
    FEASIBLE = "feasible"  # a limit ended the search
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"  # a limit ended the search before anything was found


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """When to stop. The same `nodes` give the same answer everywhere, if `seconds` do not end the search before."""

    seconds: float
    nodes: int | None = None
    relative_gap: float = 1e-6
    told: Callable[[], None] | None = None  # called now and then while HiGHS works


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`values` by variable name, empty without a solution; `bound` is proven, None if the solver does not say."""

    status: Status
    values: Mapping[str, float]
    objective: float | None
    bound: float | None


class MipProgram(Protocol):
    """A program that is solved several times with some variables fixed."""

    def relax(self, effort: Effort) -> Outcome:
        """Without integrality."""
        ...

    def solve(
        self, effort: Effort, *, fixed: Mapping[str, float] | None = None, start: Mapping[str, float] | None = None
    ) -> Outcome:
        """With integrality; `fixed` holds for this call alone, `start` is a solution to begin with."""
        ...


class HighsProgram:
    """The program in HiGHS, through PuLP's own translation."""

    def __init__(self, program: Any) -> None:
        solver = pulp.HiGHS(msg=False, threads=_THREADS, gapAbs=_ABSOLUTE_GAP, random_seed=_SEED)
        solver.createAndConfigureSolver(program)
        solver.buildSolverModel(program)
        self._highs: Any = program.solverModel
        self._names = [variable.name for variable in program.variables()]
        self._column = {name: column for column, name in enumerate(self._names)}
        self._bounds = {v.name: (v.lowBound, v.upBound) for v in program.variables()}

    def relax(self, effort: Effort) -> Outcome:
        self._highs.setOptionValue("solve_relaxation", True)
        outcome = self._run(effort, is_relaxed=True)
        self._highs.setOptionValue("solve_relaxation", False)
        return outcome

    def solve(
        self, effort: Effort, *, fixed: Mapping[str, float] | None = None, start: Mapping[str, float] | None = None
    ) -> Outcome:
        for name, value in (fixed or {}).items():
            self._highs.changeColBounds(self._column[name], value, value)
        if start:
            columns = [self._column[name] for name in start]
            self._highs.setSolution(len(columns), columns, list(start.values()))
        outcome = self._run(effort, is_relaxed=False)
        for name in fixed or {}:
            low, high = self._bounds[name]
            self._highs.changeColBounds(self._column[name], low, high)
        return outcome

    def _run(self, effort: Effort, *, is_relaxed: bool) -> Outcome:
        highs = self._highs
        highs.setOptionValue("time_limit", max(0.01, effort.seconds))
        highs.setOptionValue("mip_rel_gap", effort.relative_gap)
        highs.setOptionValue("mip_max_nodes", effort.nodes if effort.nodes is not None else highspy.kHighsIInf)
        self._run_telling(effort.told)
        info = highs.getInfo()
        is_solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        model_status = highs.getModelStatus()
        statuses = highspy.HighsModelStatus
        if model_status in (statuses.kInfeasible, statuses.kUnboundedOrInfeasible):
            return Outcome(status=Status.INFEASIBLE, values={}, objective=None, bound=None)
        is_optimal = model_status == statuses.kOptimal
        objective = float(info.objective_function_value) if is_solved else None
        bound: float | None = objective if is_relaxed and is_optimal else float(info.mip_dual_bound)
        if (is_relaxed and not is_optimal) or bound is None or not math.isfinite(bound):
            bound = None
        if not is_solved:
            return Outcome(status=Status.UNKNOWN, values={}, objective=None, bound=bound)
        return Outcome(
            status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
            values=dict(zip(self._names, highs.getSolution().col_value, strict=True)),
            objective=objective,
            bound=bound,
        )

    def _run_telling(self, told: Callable[[], None] | None) -> None:
        """Runs HiGHS, which asks several times a second whether to go on: the moment to say how far it is."""
        if told is None:
            self._highs.run()
            return
        kind = highspy.cb.HighsCallbackType.kCallbackMipInterrupt
        self._highs.setCallback(lambda *_: told(), None)
        self._highs.startCallback(kind)
        self._highs.run()
        self._highs.stopCallback(kind)


class PulpProgram:
    """The program in any solver that PuLP drives; slower to begin with, and its bound is not reported."""

    def __init__(self, program: Any, make_solver: Callable[[Effort, bool], Any]) -> None:
        self._program = program
        self._make_solver = make_solver

    def relax(self, effort: Effort) -> Outcome:
        return self._run(effort, is_mip=False)

    def solve(
        self, effort: Effort, *, fixed: Mapping[str, float] | None = None, start: Mapping[str, float] | None = None
    ) -> Outcome:
        variables = {variable.name: variable for variable in self._program.variables()}
        for name, value in (start or {}).items():
            variables[name].setInitialValue(value)
        bounds = {name: (variables[name].lowBound, variables[name].upBound) for name in fixed or {}}
        for name, value in (fixed or {}).items():
            variables[name].bounds(value, value)
        outcome = self._run(effort, is_mip=True)
        for name, (low, high) in bounds.items():
            variables[name].bounds(low, high)
        return outcome

    def _run(self, effort: Effort, *, is_mip: bool) -> Outcome:
        self._program.solve(self._make_solver(effort, is_mip))
        found = self._program.sol_status
        if found == pulp.LpSolutionInfeasible:
            return Outcome(status=Status.INFEASIBLE, values={}, objective=None, bound=None)
        if found not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return Outcome(status=Status.UNKNOWN, values={}, objective=None, bound=None)
        is_optimal = found == pulp.LpSolutionOptimal
        objective = float(pulp.value(self._program.objective))
        return Outcome(
            status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
            values={variable.name: float(variable.varValue or 0.0) for variable in self._program.variables()},
            objective=objective,
            bound=objective if is_optimal and not is_mip else None,  # CBC calls a time limit optimal now and then
        )


def _cbc(effort: Effort, is_mip: bool) -> Any:
    return pulp.PULP_CBC_CMD(
        mip=is_mip,
        msg=False,
        threads=_THREADS,
        timeLimit=max(1, round(effort.seconds)),
        gapRel=effort.relative_gap,
        warmStart=is_mip,
        options=["randomCbcSeed 1"] + ([f"maxNodes {effort.nodes}"] if effort.nodes is not None else []),
    )


_PROGRAMS: Mapping[str, Callable[[Any], MipProgram]] = {
    "highs": HighsProgram,
    "cbc": lambda program: PulpProgram(program, _cbc),
}


def open_mip_program(name: str, program: Any) -> MipProgram:
    """The program in the solver of that name: `highs`, `cbc`, or as PuLP spells it. Raises as `require_mip_solver`."""
    require_mip_solver(name)
    if name in _PROGRAMS:
        return _PROGRAMS[name](program)

    def make(effort: Effort, is_mip: bool) -> Any:
        # Only what every solver of PuLP understands: nodes, gap and a start are left to its own defaults.
        return pulp.getSolver(name, mip=is_mip, msg=False, timeLimit=max(1, round(effort.seconds)))

    return PulpProgram(program, make)


def require_mip_solver(name: str) -> None:
    """Raises `UsageError` for a solver that is not known, or not installed."""
    if name in _PROGRAMS:
        return
    known = (*_PROGRAMS, *dict.fromkeys(pulp.listSolvers()))
    if name not in known:
        raise UsageError(f"there is no MIP solver `{name}`", fix=f"choose one of {', '.join(known)}")
    installed = pulp.listSolvers(onlyAvailable=True)
    if name not in installed:
        raise UsageError(
            f"the MIP solver `{name}` is not installed",
            why=f"PuLP finds {', '.join(installed)}",
            fix=f"install it, or choose one of {', '.join((*_PROGRAMS, *installed))}",
        )
