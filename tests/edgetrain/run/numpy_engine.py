"""An engine written in NumPy whose gradients can be made wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgetrain.graph.ir import EVALUATE, LEARNING_RATE, LOSS, Role, TrainGraph
from edgetrain.run.engines.engine import Array

# The loss and each trained tensor's gradient, from the tensors by name. It writes what outputs there are.
Model = Callable[[Mapping[str, Array]], tuple[float, Mapping[str, Array]]]


class NumpyEngine:
    """Satisfies `Engine`: a step of SGD. `faults` change a gradient on its way into the update, by tensor name."""

    def __init__(
        self,
        graph: TrainGraph,
        model: Model,
        parameters: Mapping[str, Array],
        faults: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._faults = faults or {}
        self._memory = np.concatenate([p.reshape(-1) for p in parameters.values()]).astype(np.float32)
        self._arrays: dict[str, Array] = {
            t.name: np.zeros(t.shape, t.dtype) for t in graph.tensors.values() if t.role is not Role.PARAMETER
        }
        first = 0
        for name, values in parameters.items():
            self._arrays[name] = self._memory[first : first + values.size].reshape(values.shape)
            first += values.size
        self.calls = 0

    def tensor(self, name: str) -> Array:
        return self._arrays[name]

    def release(self) -> None:
        """There are no copies."""

    @property
    def saved(self) -> memoryview:
        return memoryview(self._memory.data).cast("B")

    def call(self, function: str) -> None:
        self.calls += 1
        loss, gradients = self._model(self._arrays)
        if function == EVALUATE:
            return
        self._arrays[LOSS][...] = loss
        for name, gradient in gradients.items():
            faulty = self._faults.get(name, lambda value: value)(gradient)
            self._arrays[name] -= self._arrays[LEARNING_RATE] * faulty.astype(np.float32)

    def measured_peak_bytes(self) -> int:
        return 0

    def close(self) -> None: ...
