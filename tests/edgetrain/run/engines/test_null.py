from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import InternalError
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph, validate
from edgetrain.planner.plan import Budget, Compute, Free, FunctionPlan, PageIn, PageOut, Placement, Plan, Step
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.null import NullEngine
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings
from edgetrain.run.loop.train import train


def tensor(name: str, shape: tuple[int, ...], role: Role, dtype: str = "float32") -> Tensor:
    return Tensor(name=name, shape=shape, dtype=dtype, role=role)


def op(name: str, reads: tuple[str, ...], writes: tuple[str, ...], phase: Phase) -> Op:
    return Op(name=name, kernel=name, reads=reads, writes=writes, phase=phase)


TENSORS = (
    tensor("w", (16, 3), Role.PARAMETER),
    tensor("momentum:w", (16, 3), Role.STATE),
    tensor("x", (4, 16), Role.INPUT),
    tensor("train.labels", (4,), Role.INPUT, "int64"),
    tensor("train.learning_rate", (), Role.INPUT),
    tensor("train.loss", (), Role.OUTPUT),
    tensor("evaluate.y", (4, 3), Role.OUTPUT),
    tensor("scores", (4, 3), Role.TEMPORARY),
    tensor("slope", (4, 3), Role.TEMPORARY),
)
GRAPH = TrainGraph(
    name="one layer",
    tensors={t.name: t for t in TENSORS},
    functions={
        "step": (
            op("forward", ("x", "w"), ("scores",), Phase.FORWARD),
            op("loss", ("scores", "train.labels"), ("train.loss",), Phase.LOSS),
            op("backward", ("scores", "train.labels"), ("slope",), Phase.BACKWARD),
            op("update", ("slope", "x", "train.learning_rate", "momentum:w"), ("w", "momentum:w"), Phase.UPDATE),
        ),
        "evaluate": (op("infer", ("x", "w"), ("evaluate.y",), Phase.FORWARD),),
    },
)
OFFSETS = {"w": 0, "momentum:w": 192, "x": 384, "train.labels": 640, "train.learning_rate": 704} | {
    "train.loss": 768,
    "evaluate.y": 832,
}
PERSISTENT_BYTES = 896
STEPS: tuple[Step, ...] = (
    Compute("forward"),
    Compute("loss"),
    Compute("backward"),
    Free("scores"),
    Compute("update"),
    Free("slope"),
)
SCORES = Placement(tensor="scores", start=0, end=2, offset=896, nbytes=64)
SLOPE = Placement(tensor="slope", start=2, end=4, offset=960, nbytes=64)


def plan(*placements: Placement, steps: tuple[Step, ...] = STEPS) -> Plan:
    return Plan(
        solver="by hand",
        budget=Budget(),
        functions={
            "step": FunctionPlan(function="step", steps=steps, placements=placements),
            "evaluate": FunctionPlan(function="evaluate", steps=(Compute("infer"),), placements=()),
        },
        persistent_offsets=OFFSETS,
        persistent_bytes=PERSISTENT_BYTES,
        peak_bytes=1024,
        lower_bound_bytes=1024,
        seconds=0.0,
        joules=0.0,
        saved_bytes=384,
    )


def test_the_graph_of_these_tests_is_a_valid_one() -> None:
    validate(GRAPH)


def test_the_peak_is_the_highest_byte_that_a_called_function_places() -> None:
    engine = NullEngine(GRAPH, plan(SCORES, SLOPE))
    assert engine.measured_peak_bytes() == PERSISTENT_BYTES
    engine.call("evaluate")
    assert engine.measured_peak_bytes() == PERSISTENT_BYTES
    engine.call("step")
    assert engine.measured_peak_bytes() == 1024


def test_a_plan_that_pages_is_replayed_too() -> None:
    steps = (
        Compute("forward"),
        PageOut("scores"),
        Compute("loss"),
        Free("scores"),
        PageIn("scores"),
        Compute("backward"),
        Free("scores"),
        Compute("update"),
        Free("slope"),
    )
    placements = (
        Placement(tensor="scores", start=0, end=2, offset=4096, nbytes=4096),
        Placement(tensor="scores", start=4, end=5, offset=8192, nbytes=4096),
        Placement(tensor="slope", start=5, end=7, offset=896, nbytes=64),
    )
    engine = NullEngine(GRAPH, plan(*placements, steps=steps))
    engine.call("step")
    assert engine.measured_peak_bytes() == 12288


@pytest.mark.parametrize(
    ("placements", "match"),
    [
        ((SCORES, replace(SLOPE, offset=928)), "`slope` lies on `scores` at step 2"),
        ((SCORES, replace(SLOPE, offset=832)), "`slope` lies on the persistent tensors"),
        ((SCORES,), "`slope` is placed otherwise"),
        ((SCORES, replace(SLOPE, end=3)), "`slope` is placed otherwise"),
        ((SCORES, replace(SLOPE, nbytes=32)), "`slope` is placed otherwise"),
    ],
)
def test_placements_that_break_the_plan_are_found(placements: tuple[Placement, ...], match: str) -> None:
    with pytest.raises(InternalError, match=match):
        NullEngine(GRAPH, plan(*placements)).call("step")


def test_a_plan_that_reads_what_it_freed_is_found() -> None:
    steps = (Compute("forward"), Free("scores"), Compute("loss"), Compute("backward"), Compute("update"))
    with pytest.raises(InternalError, match="scores"):
        NullEngine(GRAPH, plan(SCORES, SLOPE, steps=steps)).call("step")


def test_tensors_are_writable_views_of_one_memory() -> None:
    engine = NullEngine(GRAPH, plan(SCORES, SLOPE))
    for name, offset in OFFSETS.items():
        view = engine.tensor(name)
        assert (view.shape, view.dtype) == (GRAPH.tensors[name].shape, np.dtype(GRAPH.tensors[name].dtype))
        view[...] = offset + 1
    for name, offset in OFFSETS.items():
        assert (engine.tensor(name) == offset + 1).all()
    saved = np.frombuffer(engine.saved, np.float32)
    assert saved.tolist() == [1.0] * 48 + [193.0] * 48


class Zeros:
    """A `BatchSource` of nothing."""

    steps_per_epoch = 3

    def seek(self, position: tuple[int, int]) -> None: ...

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None: ...

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        yield 4


def test_a_whole_run_works_on_it_and_changes_nothing(tmp_path: Path) -> None:
    engine = NullEngine(GRAPH, plan(SCORES, SLOPE))
    engine.tensor("w")[...] = 0.5
    before = bytes(engine.saved)
    settings = TrainSettings(
        program_sha256="d" * 64,
        inputs=("x",),
        output="y",
        loss="cross-entropy",
        epochs=2,
        learning_rate=LearningRate(peak=0.1),
        validation_split="validation",
    )
    outcome = train(engine, Zeros(), settings, out=tmp_path)
    assert outcome.progress.step == 6
    assert bytes(engine.saved) == before
    assert engine.measured_peak_bytes() == 1024
