"""Programs to train under sanitizers: how each begins, and what the engine makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.models import small_networks as models
from benchmarks.references.trained import make_batches
from benchmarks.references.workshop import Workshop
from edgetrain.compiler.compiled import Compiled
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.graph import ir as names
from edgetrain.graph.ir import TrainGraph
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.planner.make_plan import smallest_budget
from edgetrain.planner.plan import Budget, PageIn, Plan
from edgetrain.program.artifact import Artifact
from edgetrain.program.emit_c import emit_driver, emit_header
from edgetrain.program.layout import arena_layout
from edgetrain.run.engines.local import LocalEngine
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes
from tests.edgetrain.program.tiny_program import KERNELS, PLANS, initial_values, some_input, tiny_artifact, tiny_graph
from tests.edgetrain.runtime.sanitizers import Program

STEPS = 2  # as in session.c

Values = Mapping[str, npt.NDArray[Any]]

# The same as another test trains: compiled once in a session.
_OPTIONS = TrainOptions(batch=32, optimizer=OptimizerOptions(kind="adamw"))
_LAYERS, _WIDTH = 4, 64  # dense, of parameters that take several pages each
# Free, so that paging wins over computing again.
_STORAGE = Storage(
    read_bytes_per_s=1e15, write_bytes_per_s=1e15, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A program, what its tensors begin with, inputs included, and the same program for the engine."""

    graph: TrainGraph
    plan: Plan
    kernels: Path
    values: Values
    artifact: Artifact

    @property
    def program(self) -> Program:
        return Program(
            driver=emit_driver(self.graph, self.plan), header=emit_header(self.graph, self.plan), kernels=self.kernels
        )

    def lay_out(self, folder: Path) -> None:
        """The files that session.c begins with."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "persistent.bin").write_bytes(self._persistent(self.values))
        (folder / "stored.bin").write_bytes(self._stored(self.values))

    def trained_by_engine(self, page_directory: Path) -> bytes:
        """What session.c writes: the persistent part of the arena, then what is stored, by slot."""
        with LocalEngine(self.artifact, threads=2, page_directory=page_directory) as engine:
            for tensor in self.graph.by_role(names.Role.INPUT):
                engine.tensor(tensor.name)[...] = self.values[tensor.name]
            before = self._contents(engine)
            for _ in range(STEPS):
                engine.call(names.STEP)
            assert self._contents(engine) != before, "nothing was trained: nothing would be compared"
            engine.call(names.EVALUATE)
            return self._contents(engine)

    def _contents(self, engine: LocalEngine) -> bytes:
        values = {tensor.name: engine.tensor(tensor.name).copy() for tensor in self.graph.persistent}
        return self._persistent(values) + self._stored(values)

    def _persistent(self, values: Values) -> bytes:
        memory = bytearray(arena_layout(self.graph, self.plan).persistent_bytes)
        for name, value in values.items():
            if name not in self.plan.stored:
                start = self.plan.persistent_offsets[name]
                memory[start : start + value.nbytes] = value.tobytes()
        return bytes(memory)

    def _stored(self, values: Values) -> bytes:
        return b"".join(values[name].tobytes() for name in self.plan.stored)


def tiny_session(name: str) -> Session:
    """Kernels in C, which are watched as well."""
    return Session(
        graph=tiny_graph(),
        plan=PLANS[name](),
        kernels=KERNELS,
        values={**initial_values(), "x": some_input()},
        artifact=tiny_artifact(name),
    )


def paging_network(workshop: Workshop) -> Session:
    """A network with batch normalization whose kernels LLVM compiled; temporaries are paged."""
    compiled = workshop.compile(models.batch_norm_cnn(), _OPTIONS)
    costs = analytic_costs_by_function(compiled.graph, workshop.target.device.rates)
    least = smallest_budget(compiled.graph, costs, storage=_STORAGE)
    kept = workshop.plan(compiled).peak_bytes
    plan = workshop.plan(compiled, Budget(memory_bytes=Bytes((least + kept) // 2)), storage=_STORAGE)
    return _session_of(workshop, compiled, plan, models.BATCH_NORM_IMAGE)


def storing_network(workshop: Workshop) -> Session:
    """Dense layers whose kernels LLVM compiled; parameters and state are stored between their uses."""
    net = models.Net(1)
    x = "image"
    for layer in range(_LAYERS):
        x = net.relu(net.dense(x, f"dense{layer}", inputs=_WIDTH, outputs=_WIDTH))
    net.dense(x, "head", inputs=_WIDTH, outputs=models.CLASSES, output="logits")
    compiled = workshop.compile(net.finish("dense", _WIDTH), _OPTIONS)
    kept = workshop.plan(compiled)
    plan = workshop.plan(compiled, Budget(memory_bytes=Bytes(kept.persistent_bytes * 9 // 10)), storage=_STORAGE)
    assert plan.stored, "nothing is stored: nothing would be tested"
    return _session_of(workshop, compiled, plan, (_WIDTH,))


def _session_of(workshop: Workshop, compiled: Compiled, plan: Plan, image: tuple[int, ...]) -> Session:
    assert any(isinstance(step, PageIn) for step in plan.functions[names.STEP].steps), "nothing is paged"
    return Session(
        graph=compiled.graph,
        plan=plan,
        kernels=compiled.kernels(workshop.target.device.name),
        values={**compiled.initial(), **_inputs(compiled, image)},
        artifact=workshop.build(compiled, plan),
    )


NETWORKS: Mapping[str, Callable[[Workshop], Session]] = {"pages": paging_network, "stores": storing_network}


def _inputs(compiled: Compiled, image: tuple[int, ...]) -> Values:
    (batch,) = make_batches(image, models.CLASSES, loss=_OPTIONS.loss, size=32, seed=3, count=1)
    single = {names.LEARNING_RATE: 0.02, names.FIRST_CORRECTION: 0.1, names.SECOND_CORRECTION: 0.001}
    (data,) = compiled.facts["inputs"]
    given = {data["name"]: batch.data, names.LABELS: batch.labels, **single}
    inputs = compiled.graph.by_role(names.Role.INPUT)
    return {t.name: np.asarray(given[t.name], t.dtype).reshape(t.shape) for t in inputs}
