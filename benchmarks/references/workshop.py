"""Our side of an agreement test: a model is compiled, planned, built and trained as `edgetrain fit` would.

The compiler runs in the test's own process, so that TVM is imported only once; importing it for each model would take
most of the time. Another test verifies that the compiler's own process gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.references.trained import Batch, Trained
from edgetrain.compiler import process as compiler_process
from edgetrain.compiler.compiled import Compiled
from edgetrain.compiler.request import CompileRequest, ModelSource
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.files.build_cache import BuildCache, cache_key
from edgetrain.graph.ir import Role, evaluated
from edgetrain.graph.options import TrainOptions
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget, Plan
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.history import read_history
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings
from edgetrain.run.loop.step_log import LOG
from edgetrain.run.loop.train import train
from edgetrain.targets.device import Storage
from edgetrain.targets.profile import HOST, Target, load_target

NO_LIMIT = Budget()


_HURRIED = SolverOptions(time_limit_s=3.0)


class FixedBatches:
    """A `BatchSource` that gives the listed batches in their order."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._next = 0

    @property
    def steps_per_epoch(self) -> int:
        return len(self._batches)

    def seek(self, position: tuple[int, int]) -> None:
        self._next = position[1]

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
        batch = self._batches[self._next]
        first = next(iter(inputs))  # in the model's order
        for name, value in {first: batch.data, **batch.more}.items():
            inputs[name][...] = value
        labels[...] = batch.labels
        self._next += 1

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        raise AssertionError(f"nothing here validates, and {split} was asked for")


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Builds and runs programs in `root`; what was built once is not built again. Processes may share it."""

    root: Path

    @property
    def cache(self) -> BuildCache:
        return BuildCache(self.root / "builds")

    @property
    def target(self) -> Target:
        return load_target(HOST)

    def request(self, proto: Any, options: TrainOptions) -> CompileRequest:
        """What the compiler is asked for, the model saved as a file."""
        content = proto.SerializeToString(deterministic=True)
        path = self.root / "models" / f"{hashlib.sha256(content).hexdigest()[:16]}.onnx"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(content)
            Path(file.name).replace(path)  # whole or not at all: other processes read it
        device = self.target.device
        return CompileRequest(
            model=ModelSource(source=str(path)),
            options=options,
            codegen=device.codegen,
            archives={device.name: device.codegen},
        )

    def compile(self, proto: Any, options: TrainOptions) -> Compiled:
        """As `compile_graph`, in this process. Raises the same errors."""
        request = self.request(proto, options)
        key = cache_key("agreement", request.to_json())

        def build(out: Path) -> None:
            job = {"request": request.to_json(), "objects": str(self.root / "objects")}
            compiler_process._compile({**job, "stores": None, "terms": None}, out, io.StringIO())

        return Compiled(directory=self.cache.put(key, build), key=key)

    def plan(
        self,
        compiled: Compiled,
        budget: Budget = NO_LIMIT,
        *,
        solver: str = "greedy",
        storage: Storage | None = None,
    ) -> Plan:
        """Exact solvers get a few seconds: what they have by then is a plan like any other."""
        costs = analytic_costs_by_function(compiled.graph, self.target.device.rates)
        return make_plan(compiled.graph, budget, costs, solver=solver, storage=storage, options=_HURRIED)

    def build(self, compiled: Compiled, plan: Plan) -> Artifact:
        return build_program(compiled, plan, self.target.device, cache=self.cache)

    def engine(self, program: Artifact, *, threads: int = 1) -> LocalEngine:
        return LocalEngine(program, threads=threads, page_directory=self.root)

    def train(
        self,
        compiled: Compiled,
        batches: Sequence[Batch],
        options: TrainOptions,
        *,
        learning_rate: float,
        plan: Plan | None = None,
        threads: int = 1,
    ) -> Trained:
        """The real loop over the listed batches, `options.accumulate` of them in a step."""
        program = self.build(compiled, plan or self.plan(compiled))
        with self.engine(program, threads=threads) as engine, tempfile.TemporaryDirectory(dir=self.root) as out:
            initial = parameters_of(engine, program)
            train(
                engine,
                FixedBatches(batches),
                settings_of(compiled, options, learning_rate),
                out=Path(out),
            )
            losses = read_history(Path(out) / LOG).losses
            return Trained(losses=losses, initial=initial, final=parameters_of(engine, program))

    def train_model(
        self, proto: Any, batches: Sequence[Batch], options: TrainOptions, *, learning_rate: float
    ) -> Trained:
        """`compile` and `train`, with nothing recomputed."""
        return self.train(self.compile(proto, options), batches, options, learning_rate=learning_rate)


def settings_of(compiled: Compiled, options: TrainOptions, learning_rate: float) -> TrainSettings:
    is_adam = options.optimizer.kind in ("adam", "adamw")
    return TrainSettings(
        program_sha256=compiled.key,
        inputs=tuple(i["name"] for i in compiled.facts["inputs"]),
        output=compiled.facts["outputs"][0],
        loss=options.loss,
        epochs=1,
        learning_rate=LearningRate(peak=learning_rate),
        accumulate=options.accumulate,
        adam_betas=(options.optimizer.beta1, options.optimizer.beta2) if is_adam else None,
    )


def parameters_of(engine: LocalEngine, program: Artifact) -> dict[str, Array]:
    """A copy of every parameter, trained or not."""
    return {t.name: engine.tensor(t.name).copy() for t in program.graph.by_role(Role.PARAMETER)}


def outputs_of(engine: LocalEngine, compiled: Compiled, data: Array) -> Array:
    """A copy of what `evaluate` puts out for the batch `data`."""
    (model_input,) = compiled.facts["inputs"]
    engine.tensor(model_input["name"])[...] = data
    engine.call("evaluate")
    return engine.tensor(evaluated(compiled.facts["outputs"][0])).copy()
