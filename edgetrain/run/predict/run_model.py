"""A run's own program as a model that predicts: the kernels that trained it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgetrain.dataset.bounds import Bounds
from edgetrain.graph.ir import EVALUATE, evaluated
from edgetrain.model.tensor_names import graph_name
from edgetrain.run.engines.engine import Array, Engine
from edgetrain.run.files.trained import TrainedRun, trained_engine
from edgetrain.run.loop.feed import conversion_of
from edgetrain.run.predict.task import Description, describe


@dataclass(frozen=True, kw_only=True)
class RunModel:
    """Satisfies `Model`, as long as its engine is open."""

    engine: Engine
    description: Description
    bounds: Bounds
    is_activated: bool = False  # the program gives what the loss reads: logits, scaled values

    @property
    def inputs(self) -> Mapping[str, Array]:
        return {name: self.engine.tensor(graph_name(name)) for name in self.description.task.inputs}

    def outputs(self) -> Array:
        self.engine.call(EVALUATE)
        return self.engine.tensor(evaluated(self.description.task.output))


@contextlib.contextmanager
def opened_run_model(run: TrainedRun, *, threads: int) -> Iterator[RunModel]:
    """The run's trained model on this machine. Raises as `trained_engine`."""
    description = describe(run.recipe, run.reading, run.program.graph, inputs=run.inputs, output=run.output)
    with trained_engine(run, threads=threads) as engine:
        conversion = conversion_of(run.recipe.data, run.program.graph)
        yield RunModel(engine=engine, description=description, bounds=conversion.bounds)
