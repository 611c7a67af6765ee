"""Measures the planner in one run: published instances, brute force, a thousand ops, real models, all solvers, paging.

    python -m benchmarks.planner --cases DIR --output planner.json

`--cases` is a folder of `edgetrain.plan-instance/1` files with the best known answers. Real models (`--models`) are
planned for 50 % and 30 % of the memory that keeping everything takes, parameters and state included, and run. `--graph`
takes graphs that `edgetrain fit --dump` wrote; each is planned for the same shares of its temporaries. Everything runs
on one thread. The benchmark ends with the promises that do not hold, and then with exit code 1.
`python -m benchmarks.planner_page planner.json docs` makes a page of the result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from benchmarks.paging import paging_rows
from benchmarks.planner_graphs import repeated_network, residual_network
from benchmarks.planner_models import planned_models, prepared_model
from benchmarks.planner_references import against_brute_force, placement_against_brute_force
from benchmarks.planner_verdicts import broken_promises
from edgetrain.cost.analytic import OpCost, analytic_costs
from edgetrain.errors import UsageError
from edgetrain.graph.ir import TrainGraph, from_json
from edgetrain.planner.arena import pack
from edgetrain.planner.known_solvers import SOLVERS
from edgetrain.planner.plan import replay
from edgetrain.planner.references.solve_instance import Case, read_instance, solve_instance
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.milp import answer_milp
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.search import SearchOptions
from edgetrain.targets.device import Rates, Storage
from edgetrain.targets.profile import HOST, load_target

FORMAT = "edgetrain.benchmark/planner/1"

Row = dict[str, object]
Rows = Iterable[Mapping[str, object]]

_LARGE_LIMIT_S = 55.0  # with the quick plans before, a minute
_SWEEP_LIMIT_S = 5.0
_PAGING_ROUNDS = 60  # of steps of some tens of milliseconds
_PAGED_MODELS = ("zoo:digits-cnn-bn",)
_MODELS = "resnet-18,efficientnet-lite0,minilm-l6"
_BRUTE_FORCE = ("instances", "infeasible", "differing", "seconds")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "models": (
        *("model", "share", "way", "planning_s", "gap", "greedy_slowdown_predicted", "peak_over_budget"),
        *("fragmentation", "stored", "measured_over_budget", "slowdown_predicted", "slowdown_measured"),
        *("prediction_error", "spread", "n"),
    ),
    "graphs": ("graph", "ops", "share", "storage", "seconds", "gap", "slowdown", "fragmentation"),
    "published": ("instance", "case", "objective", "best", "above_best", "gap", "seconds", "verdict"),
    "two_devices": _BRUTE_FORCE,
    "brute_force": _BRUTE_FORCE,
    "sweep": ("solver", "share", "seconds", "feasible", "slowdown"),
    "paging": ("model", "of keep-all", "MB moved", "transfers ms", "overlapped ms", "synchronous ms", "ratio", "n"),
    "repeats": ("graph", "ops", "share", "once", "seconds", "gap", "slowdown"),
    "side_by_side": ("graph", "solver", "share", "seconds", "feasible", "slowdown", "joules"),
}
# A board with four Cortex-A72 cores and a good SD card. Assumptions of the order of `targets/raspberry-pi-4.toml`.
BOARD = Rates(flops_per_s=2.4e10, memory_bytes_per_s=4e9, launch_s=5e-6, joules_per_flop=2e-10, joules_per_byte=1e-9)
CARD = Storage(
    read_bytes_per_s=9e7, write_bytes_per_s=4e7, joules_per_byte_read=8e-9, joules_per_byte_written=2e-8, latency_s=0.0
)


def published(directory: Path, time_limit_s: float) -> Iterator[Row]:
    """Every case of every file: our answer beside the best known."""
    for path in sorted(directory.glob("*.json")):
        for number, case in enumerate(read_instance(path.read_text(encoding="utf-8"))):
            answer = solve_instance(case, time_limit_s=time_limit_s)
            objective = answer["objective"]
            above = objective / case.best - 1 if isinstance(objective, float) and case.best else None
            yield {
                "instance": path.stem,
                "case": number,
                **answer,
                "best": case.best,
                "best_is_proven": case.is_proven,
                "above_best": above,
                "verdict": _verdict(case, answer, above),
            }


def _verdict(case: Case, answer: Mapping[str, object], above: float | None) -> str:
    if case.is_infeasible:
        return "ok" if not answer["feasible"] else "found a plan where none was known"
    if above is None:
        return "MISSED"
    return "ok" if above <= (1e-3 if case.is_proven else 5e-3) else "MISSED"


def swept(layers: int, time_limit_s: float) -> Iterator[Row]:
    """What less and less memory costs with each solver that takes graphs of this size."""
    graph = residual_network(layers)
    for share in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3):
        for row in side_by_side(graph, share, time_limit_s):
            if row["solver"] not in ("keep-all", "poet"):
                yield row


def repeats_once(graph: TrainGraph, share: float, device: Rates, time_limit_s: float) -> Iterator[Row]:
    """The exact planner with blocks that look alike decided as one, and without."""
    costs = analytic_costs(graph, "step", device)
    question = _question(graph, share, costs, None, time_limit_s)
    for once in (True, False):
        started_s = time.monotonic()
        options = SearchOptions(time_limit_s=time_limit_s, merges_repeats=once)
        answer = answer_milp(question, search_options=options)
        row: Row = {"graph": graph.name, "ops": len(graph.functions["step"]), "share": share, "once": once}
        row |= {"seconds": time.monotonic() - started_s, "gap": answer.gap}
        if answer.cost is not None:
            row["slowdown"] = answer.cost / _keep_all_seconds(graph, costs)
        yield row


def planned(graph: TrainGraph, share: float, storage: Storage | None, time_limit_s: float) -> Row:
    """The exact planner on a graph's `step`, with the temporaries held to a share of what keep-all needs."""
    costs = analytic_costs(graph, "step", BOARD)
    question = _question(graph, share, costs, storage, time_limit_s)
    limit_bytes = question.limit_bytes or 0
    started_s = time.monotonic()
    answer = answer_milp(question)
    row: Row = {
        "graph": graph.name,
        "ops": len(graph.functions["step"]),
        "share": share,
        "storage": storage is not None,
        "seconds": time.monotonic() - started_s,
        "gap": answer.gap,
        "feasible": answer.steps is not None,
    }
    if answer.steps is None:
        return row
    found = replay(graph, "step", answer.steps, costs, storage)
    packing = pack(found.stays)
    return row | {
        "peak_over_limit": found.temporary_peak_bytes / limit_bytes,
        "fragmentation": packing.arena_bytes / max(1, packing.lower_bound_bytes) - 1,
        "slowdown": found.seconds / _keep_all_seconds(graph, costs),
        "recomputed_ops": len(found.recomputed),
        "paged_in_bytes": found.paged_in_bytes,
    }


def _question(
    graph: TrainGraph, share: float, costs: Mapping[str, OpCost], storage: Storage | None, time_limit_s: float
) -> Question:
    """`step`, with temporaries held to a share of what keep-all needs."""
    options = SolverOptions(time_limit_s=time_limit_s)
    free = Question(graph=graph, function="step", limit_bytes=None, costs=costs, storage=storage, options=options)
    return replace(free, limit_bytes=int(share * free.peak_bytes(free.everything)))


def side_by_side(graph: TrainGraph, share: float, time_limit_s: float) -> Iterator[Row]:
    """Every solver of `SOLVERS` on the same graph, limit and storage; each replayed."""
    costs = analytic_costs(graph, "step", BOARD)
    question = _question(graph, share, costs, CARD, time_limit_s)
    for name, solve in SOLVERS.items():
        started_s = time.monotonic()
        row: Row = {"graph": graph.name, "solver": name, "share": share, "feasible": False}
        try:
            steps = solve(question).steps
        except UsageError as error:  # `poet` takes small graphs only
            yield row | {"reason": error.what}
            continue
        row["seconds"] = time.monotonic() - started_s
        if steps is not None:
            found = replay(graph, "step", steps, costs, CARD)
            slowdown = found.seconds / _keep_all_seconds(graph, costs)
            row |= {"feasible": True, "slowdown": slowdown, "joules": found.joules}
        yield row


def _keep_all_seconds(graph: TrainGraph, costs: Mapping[str, OpCost]) -> float:
    return replay(graph, "step", keep_all_steps(graph, "step"), costs).seconds


def _say(title: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    print(f"\n{title}\n  " + " ".join(f"{column:>14}" for column in columns))
    for row in rows:
        print("  " + " ".join(f"{_cell(row.get(column)):>14}" for column in columns))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[-14:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, help="folder of plan instances")
    parser.add_argument("--graph", type=Path, action="append", default=[], help="a dumped graph; may be repeated")
    parser.add_argument("--models", default=_MODELS, help=f"comma-separated, or nothing: {_MODELS}")
    parser.add_argument("--rounds", type=int, default=8, help="timed steps of each program (8)")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for one plan (30)")
    parser.add_argument("--random", type=int, default=1000, help="instances against brute force (1000)")
    parser.add_argument("--layers", type=int, default=333, help="of the large graph, three ops each (333)")
    parser.add_argument("--repeats-limit", type=float, default=60.0, help="seconds for one plan of equal blocks (60)")
    parser.add_argument("--output", type=Path, default=Path("planner.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "format": FORMAT,
        "machine": machine(),
        "versions": {package: version(package) for package in ("pulp", "highspy", "numpy")},
        "time_limit_s": arguments.time_limit,
        "load_at_start": os.getloadavg(),
    }
    for section, rows in _sections(arguments):
        result[section] = []
        for row in rows:
            result[section].append(row)
            arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        _say(section, result[section], _COLUMNS[section])
    result["load_at_end"] = os.getloadavg()
    result["broken"] = broken_promises(result)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print("\n" + "\n".join(result["broken"] or ["everything that was promised holds"]))
    return 1 if result["broken"] else 0


def _sections(arguments: argparse.Namespace) -> Iterator[tuple[str, Rows]]:
    """Every part of the benchmark, measured when its rows are read; a run that is cut short keeps those before."""
    limit_s: float = arguments.time_limit
    models = [name for name in arguments.models.split(",") if name]
    graphs = [from_json(path.read_text(encoding="utf-8")) for path in arguments.graph]
    yield "models", planned_models(models, limit_s, arguments.rounds)
    yield "graphs", _planned_graphs(arguments.layers, graphs, limit_s)
    yield "published", published(arguments.cases, limit_s) if arguments.cases else ()
    yield "two_devices", (placement_against_brute_force(count) for count in (arguments.random // 5,))
    yield "brute_force", (against_brute_force(count) for count in (arguments.random,))
    yield "sweep", swept(24, _SWEEP_LIMIT_S)
    small = residual_network(10)
    yield "side_by_side", (row for share in (0.7, 0.5) for row in side_by_side(small, share, limit_s))
    yield "repeats", _repeats(models, arguments.repeats_limit)
    yield "paging", (row for model in _PAGED_MODELS for row in paging_rows(model, rounds=_PAGING_ROUNDS))


def _repeats(models: Sequence[str], limit_s: float) -> Iterator[Row]:
    """Modelled costs: of the board for the made-up network, of this host for the real one."""
    yield from repeats_once(repeated_network(32), 0.6, BOARD, limit_s)
    if "minilm-l6" in models:
        graph = prepared_model("minilm-l6").compiled.graph
        for share in (0.6, 0.4):
            yield from repeats_once(graph, share, load_target(HOST).device.rates, limit_s)


def _planned_graphs(layers: int, graphs: Sequence[TrainGraph], limit_s: float) -> Iterator[Row]:
    yield planned(residual_network(layers), 0.5, None, _LARGE_LIMIT_S)
    for graph in graphs:
        for share in (0.5, 0.3):
            yield from (planned(graph, share, storage, limit_s) for storage in (None, CARD))


if __name__ == "__main__":
    sys.exit(main())
