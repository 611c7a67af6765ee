"""Compares paging that overlaps with compute with the same plan executed synchronously, on the same storage.

    python -m benchmarks.paging [--json FILE] [--rounds N] [--pages DIR]

The plan comes from the default solver, for a share of keep-all's memory. It is made for storage so fast that paging
pays: this storage moves the temporaries of keep-all once in a given part of the time of a step. The plan is linked
twice, with the same driver and kernels: with the pager's own thread, and without threads, where a transfer is complete
when the call returns. Both compute with one thread.

The storage is a page file in memory (`--pages`; /dev/shm if it exists) behind the runtime's throttle
(`edge_page_throttle`), which is set to the same part of the measured time of a step. A transfer takes at least its
bytes divided by the rate. It sleeps for that time, so it costs no CPU, as with DMA. Steps are timed in turns.

Each row has the medians, the ratio synchronous / overlapped with the spread of both, and `hidden`: the part of the
transfers' time that the overlapped step did not wait for. There is no row if the solver prefers to recompute. The
benchmark ends with an error if overlapping is not faster, or if the parameters of the two differ in a bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measure import Prepared, Row, fill_inputs, prepare, show_table, stepper, time_in_turns, write_json
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.planner.make_plan import make_plan, try_plan
from edgetrain.planner.plan import Budget, PageIn, PageOut, Plan
from edgetrain.program.artifact import Artifact, write_artifact
from edgetrain.program.emit_c import emit_driver
from edgetrain.program.library import build_library
from edgetrain.run.engines.local import LocalEngine
from edgetrain.targets.device import Storage
from edgetrain.targets.profile import HOST, load_target
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain.units import Bytes

ROUNDS = 20
CLASSES = 10
_IN_MEMORY = Path("/dev/shm")
_PLANNED_SHARE = 0.1  # of a step, in which the storage that is planned for moves keep-all's temporaries once
_BUDGETS = (0.8, 0.7)  # of keep-all's memory
_TRANSFERS = (0.25, 0.5, 1.0)  # their time, of that of an unthrottled step
_SGD = OptimizerOptions(kind="sgd", momentum=0.9)
_SUBJECTS: Mapping[str, TrainOptions] = {
    "zoo:digits-cnn-bn": TrainOptions(batch=256, optimizer=_SGD),
    "zoo:efficientnet-lite0": TrainOptions(batch=4, optimizer=_SGD, batchnorm="frozen"),
}


def paging_plan(prepared: Prepared, budget_share: float) -> Plan | None:
    """The default solver's plan; None where it does not fit, or does not page."""
    graph = prepared.compiled.graph
    costs = analytic_costs_by_function(graph, load_target(HOST).device.rates)
    keep_all = make_plan(graph, Budget(), costs)
    rate = temporary_bytes(keep_all) / (_PLANNED_SHARE * keep_all.seconds)
    storage = Storage(
        read_bytes_per_s=rate,
        write_bytes_per_s=rate,
        joules_per_byte_read=0.0,
        joules_per_byte_written=0.0,
        latency_s=0.0,
    )
    budget = Budget(memory_bytes=Bytes(int(budget_share * keep_all.peak_bytes)))
    plan = try_plan(graph, budget, costs, storage=storage)
    return plan if plan is not None and paged_bytes(prepared, plan) else None


def temporary_bytes(plan: Plan) -> int:
    return (plan.keep_all_bytes or plan.peak_bytes) - plan.persistent_bytes


def paged_bytes(prepared: Prepared, plan: Plan) -> int:
    """Bytes that one step moves, both ways."""
    tensors = prepared.compiled.graph.tensors
    steps = plan.functions["step"].steps
    return sum(tensors[step.tensor].nbytes for step in steps if isinstance(step, PageOut | PageIn))


def build(prepared: Prepared, plan: Plan, folder: Path, *, threads: bool) -> Artifact:
    """The program, with the pager's thread or without any."""
    device, compiler = load_target(HOST).device, find_compiler()
    driver = emit_driver(prepared.compiled.graph, plan)
    library = build_library(
        driver_c=driver,
        kernels=prepared.compiled.kernels(device.name),
        out=folder / "library",
        threads=threads,
        compiler=compiler,
    )
    return write_artifact(
        folder / "program",
        graph=prepared.compiled.graph,
        plan=plan,
        library=library,
        driver_c=driver,
        parameters=prepared.compiled.initial(),
        target_name=device.name,
        codegen=device.codegen,
        versions={"compiler": compiler.version},
    )


@contextmanager
def engines(prepared: Prepared, plan: Plan, pages: Path) -> Iterator[dict[str, LocalEngine]]:
    with ExitStack() as stack:
        opened = {}
        for name, threads in (("overlapped", True), ("synchronous", False)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgetrain-paging-")))
            artifact = build(prepared, plan, folder, threads=threads)
            opened[name] = stack.enter_context(LocalEngine(artifact, threads=1, page_directory=pages))
            fill_inputs(opened[name], prepared.compiled, classes=CLASSES)
        yield opened


def measure(prepared: Prepared, plan: Plan, pages: Path, *, rounds: int) -> Iterator[Row]:
    moved = paged_bytes(prepared, plan)
    with engines(prepared, plan, pages) as opened:
        steps = {kind: stepper(engine) for kind, engine in opened.items()}
        for share in _TRANSFERS:
            throttle(opened, 0)
            free_s = time_in_turns(steps, rounds=max(4, rounds // 2))["synchronous"].seconds
            throttle(opened, int(moved / (share * free_s)))
            timed = time_in_turns(steps, rounds=rounds)
            overlapped, synchronous = timed["overlapped"], timed["synchronous"]
            yield {
                "model": prepared.name,
                "of keep-all": plan.peak_bytes / (plan.keep_all_bytes or plan.peak_bytes),
                "pages": sum(isinstance(s, PageOut | PageIn) for s in plan.functions["step"].steps),
                "MB moved": moved / 1e6,
                "unthrottled ms": free_s * 1e3,
                "transfers ms": share * free_s * 1e3,
                "overlapped ms": overlapped.seconds * 1e3,
                "spread": overlapped.spread,
                "synchronous ms": synchronous.seconds * 1e3,
                "spread of it": synchronous.spread,
                "ratio": synchronous.seconds / overlapped.seconds,
                "n": overlapped.n,
                "bit-identical": bytes(opened["overlapped"].saved) == bytes(opened["synchronous"].saved),
            }


def throttle(opened: Mapping[str, LocalEngine], bytes_per_second: int) -> None:
    for engine in opened.values():
        engine.throttle_paging(bytes_per_second)


def paging_rows(source: str, *, rounds: int = ROUNDS, pages: Path | None = None) -> Iterator[Row]:
    """Every row of one model."""
    folder = pages or (_IN_MEMORY if _IN_MEMORY.is_dir() else Path(tempfile.gettempdir()))
    classes = CLASSES if source == "zoo:efficientnet-lite0" else None
    prepared = prepare(source.removeprefix("zoo:"), source, _SUBJECTS[source], classes=classes)
    plans = (paging_plan(prepared, share) for share in _BUDGETS)
    for plan in (plan for plan in plans if plan is not None):
        yield from measure(prepared, plan, folder, rounds=rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--models", default=",".join(_SUBJECTS))
    parser.add_argument("--pages", type=Path)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for source in arguments.models.split(","):
        rows += paging_rows(source, rounds=arguments.rounds, pages=arguments.pages)
    show_table(rows, list(rows[0]))
    if arguments.json is not None:
        write_json(arguments.json, "paging", rows)
    broken = [row for row in rows if not row["bit-identical"] or float(str(row["ratio"])) <= 1]
    for row in broken:
        print(
            f"not faster, or not the same: {row['model']} at {row['transfers ms']:.3g} ms of transfers", file=sys.stderr
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
