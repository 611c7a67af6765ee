"""Plans real models for shares of their own memory, runs them, and compares their time with the prediction.

Used by `benchmarks/planner.py`. The costs are measured: the seconds of each kernel in a profiling run of the program
that keeps everything, and the rates of the disk by reading and writing a file past the page cache.
"""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from benchmarks.measure import Prepared, prepare, saved_model, stepper, time_in_turns
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.cost.measured import measured_costs
from edgetrain.graph.ir import LEARNING_RATE
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.locate import user_cache_dir
from edgetrain.model.onnx_build import FloatArray, GraphWriter
from edgetrain.planner.explain import explain
from edgetrain.planner.make_plan import CostsByFunction, make_plan, try_plan
from edgetrain.planner.plan import Budget, Plan
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.program.artifact import Artifact
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.profile import profile
from edgetrain.run.engines.synthetic import fill_synthetic
from edgetrain.targets.device import Storage
from edgetrain.targets.profile import HOST, load_target
from edgetrain.units import Bytes

CLASSES = 10
SHARES = (0.5, 0.3)
Row = dict[str, object]

_THREADS = 1
_PROBE_BYTES = 64 << 20
_PROBE_ROUNDS = 5
_SMALL_TRANSFERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    source: Callable[[], str]
    options: TrainOptions
    classes: int | None = CLASSES


def subjects() -> Mapping[str, Subject]:
    momentum = OptimizerOptions(kind="sgd", momentum=0.9)
    return {
        "efficientnet-lite0": Subject(
            source=lambda: "zoo:efficientnet-lite0", options=TrainOptions(batch=4, optimizer=momentum)
        ),
        "resnet-18": Subject(
            source=lambda: str(saved_model("planner-resnet-18", resnet18())),
            options=TrainOptions(batch=4, optimizer=momentum),
            classes=None,
        ),
        "minilm-l6": Subject(
            source=lambda: "zoo:minilm-l6",
            options=TrainOptions(
                # Long enough that activations, not AdamW's state, are most of the memory: else 30 % are less than the
                # update of the word embedding needs by itself.
                batch=16,
                optimizer=OptimizerOptions(kind="adamw"),
                input_shapes={"input_ids": (128,), "attention_mask": (128,)},
            ),
            classes=2,
        ),
    }


def resnet18() -> onnx.ModelProto:
    """ResNet-18 of the paper at 224 × 224, with random weights: arithmetic and memory are those of the trained one."""
    rng = np.random.default_rng(0)
    writer = GraphWriter()

    def unit(x: str, name: str, inputs: int, outputs: int, *, size: int, stride: int = 1) -> str:
        shape = (outputs, inputs, size, size)
        weight: FloatArray = (rng.standard_normal(shape) * np.sqrt(2 / (inputs * size * size))).astype(np.float32)
        y = writer.convolution(x, weight, name, stride=stride, pads=(size // 2,) * 4)
        ones, zeros = np.ones(outputs, np.float32), np.zeros(outputs, np.float32)
        return writer.batch_norm(
            y, f"{name}.norm", scale=ones, bias=zeros, mean=zeros, variance=ones, epsilon=1e-5, momentum=0.9
        )

    x = writer.node("Relu", [unit("image", "stem", 3, 64, size=7, stride=2)], "stem.relu")
    x = writer.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            y = writer.node("Relu", [unit(x, f"{name}.0", inputs, outputs, size=3, stride=stride)], f"{name}.relu")
            y = unit(y, f"{name}.1", outputs, outputs, size=3)
            if stride > 1:
                x = unit(x, f"{name}.shortcut", inputs, outputs, size=1, stride=stride)
            x = writer.node("Relu", [writer.node("Add", [y, x], f"{name}.sum")], f"{name}.out")
            inputs = outputs
    x = writer.node("Flatten", [writer.node("GlobalAveragePool", [x], "pooled")], "features")
    head: FloatArray = (rng.standard_normal((CLASSES, 512)) / np.sqrt(512)).astype(np.float32)
    writer.dense(x, head, np.zeros(CLASSES, np.float32), "logits", layer="head")
    return writer.finish("resnet-18", image=(3, 224, 224), classes=CLASSES)


def measured_storage(directory: Path) -> Storage:
    """The disk under `directory`, past the page cache where it allows: medians of some transfers, large and small."""
    modelled = load_target(HOST).device.storage
    assert modelled is not None
    buffer = mmap.mmap(-1, _PROBE_BYTES)
    path = directory / "probe"
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_DIRECT", 0)
    try:
        file = os.open(path, flags, 0o600)
    except OSError:  # a filesystem without direct transfers
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        page = memoryview(buffer)[: mmap.PAGESIZE]
        waits = [_seconds(lambda: os.pwrite(file, page, 0)) for _ in range(_SMALL_TRANSFERS)]
        waits += [_seconds(lambda: os.preadv(file, [page], 0)) for _ in range(_SMALL_TRANSFERS)]
        writes = [_seconds(lambda: os.pwrite(file, buffer, 0)) for _ in range(_PROBE_ROUNDS)]
        reads = [_seconds(lambda: os.preadv(file, [buffer], 0)) for _ in range(_PROBE_ROUNDS)]
    finally:
        os.close(file)
        path.unlink()
    return replace(
        modelled,
        read_bytes_per_s=_PROBE_BYTES / statistics.median(reads),
        write_bytes_per_s=_PROBE_BYTES / statistics.median(writes),
        latency_s=statistics.median(waits),
    )


def _seconds(do: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    do()
    return time.perf_counter() - started_s


def prepared_model(name: str) -> Prepared:
    subject = subjects()[name]
    return prepare(name, subject.source(), subject.options, classes=subject.classes)


def planned_models(names: Sequence[str], time_limit_s: float, rounds: int) -> Iterator[Row]:
    """Each model at each share: the plan, and what it does when it runs."""
    for name in names:
        prepared = prepared_model(name)
        with tempfile.TemporaryDirectory(dir=user_cache_dir()) as pages:
            trial = _Trial(prepared=prepared, directory=Path(pages))
            for share in SHARES:
                yield from trial.rows(share, time_limit_s=time_limit_s, rounds=rounds)


@dataclass(slots=True, kw_only=True)
class _Trial:
    prepared: Prepared
    directory: Path

    def rows(self, share: float, *, time_limit_s: float, rounds: int) -> Iterator[Row]:
        storage = measured_storage(self.directory)
        costs = self.measured()
        keep_all = make_plan(self.prepared.compiled.graph, Budget(), costs)
        ways: dict[str, Storage | None] = {"recompute": None, "page": storage}
        if share * keep_all.peak_bytes <= keep_all.persistent_bytes:
            del ways["recompute"]  # parameters and state alone are larger
        for way, allowed in ways.items():
            row: Row = {
                "model": self.prepared.name,
                "ops": len(self.prepared.compiled.graph.functions["step"]),
                "share": share,
                "way": way,
                "keep_all_bytes": keep_all.peak_bytes,
                "persistent_bytes": keep_all.persistent_bytes,
                "budget_bytes": int(share * keep_all.peak_bytes),
                "read_bytes_per_s": storage.read_bytes_per_s,
                "write_bytes_per_s": storage.write_bytes_per_s,
                "latency_s": storage.latency_s,
            }
            budget = Budget(memory_bytes=Bytes(int(share * keep_all.peak_bytes)))
            quick, quick_s, _ = self._plan("greedy", budget, costs, allowed, time_limit_s)
            plan, planning_s, processor_s = self._plan("milp", budget, costs, allowed, time_limit_s)
            row |= {"solver": "milp", "feasible": plan is not None, "greedy_planning_s": quick_s}
            row |= {"planning_s": planning_s, "planning_processor_s": processor_s}
            if quick is not None:
                row["greedy_slowdown_predicted"] = quick.seconds / _seconds_kept(quick)
            yield row if plan is None else row | self._what_it_does(plan, keep_all, rounds)

    def _plan(
        self, solver: str, budget: Budget, costs: CostsByFunction, storage: Storage | None, time_limit_s: float
    ) -> tuple[Plan | None, float, float]:
        """The plan, if there is one, and how long planning took: by the clock, and of the processor's time."""
        graph, options = self.prepared.compiled.graph, SolverOptions(time_limit_s=time_limit_s)
        started_s, processor_s = time.monotonic(), time.process_time()
        plan = try_plan(graph, budget, costs, solver=solver, storage=storage, options=options)
        return plan, time.monotonic() - started_s, time.process_time() - processor_s

    def _what_it_does(self, plan: Plan, keep_all: Plan, rounds: int) -> Row:
        explanation = explain(self.prepared.compiled.graph, plan)
        budget_bytes = plan.budget.memory_bytes or plan.peak_bytes
        return {
            "gap": plan.gap,
            "peak_over_budget": plan.peak_bytes / budget_bytes,
            "fragmentation": plan.peak_bytes / plan.lower_bound_bytes - 1,
            "recomputed_ops": len(explanation.recomputed),
            "paged": len(explanation.paged),
            "stored": len(plan.stored),
            "slowdown_predicted": plan.seconds / _seconds_kept(plan),
            **self._run(plan, keep_all, rounds),
        }

    def _run(self, plan: Plan, keep_all: Plan, rounds: int) -> Row:
        """A step of the plan against one that keeps everything, in turns; and the arena that it used."""
        with ExitStack() as stack:
            engines = {
                name: stack.enter_context(self._engine(self.prepared.program(p)))
                for name, p in (("planned", plan), ("kept", keep_all))
            }
            timed = time_in_turns({name: stepper(engine) for name, engine in engines.items()}, rounds=rounds)
            measured_bytes = engines["planned"].measured_peak_bytes()
        assert plan.budget.memory_bytes is not None
        measured, predicted = timed["planned"].seconds / timed["kept"].seconds, plan.seconds / _seconds_kept(plan)
        return {
            "measured_over_budget": measured_bytes / plan.budget.memory_bytes,
            "slowdown_measured": measured,
            "prediction_error": measured / predicted - 1,
            "spread": timed["planned"].spread,
            "kept_spread": timed["kept"].spread,
            "n": timed["planned"].n,
        }

    def measured(self) -> CostsByFunction:
        """Seconds of every kernel on this machine."""
        graph = self.prepared.compiled.graph
        modelled = analytic_costs_by_function(graph, load_target(HOST).device.rates)
        program = self.prepared.program(make_plan(graph, Budget(), modelled), profile=True)
        with self._engine(program) as engine:
            return measured_costs(modelled, profile(engine, graph))

    def _engine(self, program: Artifact) -> LocalEngine:
        engine = LocalEngine(program, threads=_THREADS, page_directory=self.directory)
        fill_synthetic(engine, program.graph, loss="cross-entropy", seed=0)
        engine.tensor(LEARNING_RATE)[...] = 1e-5
        return engine


def _seconds_kept(plan: Plan) -> float:
    assert plan.keep_all_seconds is not None
    return plan.keep_all_seconds
