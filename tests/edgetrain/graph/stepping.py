"""Runs a `BuiltStep` on the Relax virtual machine: what the graph means, before anything of ours lowers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgetrain._tvm import Target, relax, runtime, tvm
from edgetrain.graph.build import EVALUATE_PREFIX, BuiltStep, build_step
from edgetrain.graph.ir import LABELS, LEARNING_RATE, LOSS
from edgetrain.graph.options import TrainOptions
from edgetrain.model.importer import import_model
from edgetrain.model.model import Array


@dataclass
class Stepper:
    """The tensors of a training run by name; `call` writes a function's results into them."""

    built: BuiltStep
    values: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {n: np.array(a) for n, a in self.built.initial.items()}
        entries = list(self.built.functions)
        module = relax.transform.DeadCodeElimination(entries)(self.built.module)
        executable = tvm.compile(module, target=Target({"kind": "llvm"}))
        self._machine = relax.VirtualMachine(executable, tvm.cpu())

    def call(self, function: str, inputs: Mapping[str, Array]) -> None:
        self.values |= inputs
        signature = self.built.functions[function]
        arguments = []
        for name in signature.arguments:
            tensor = self.built.tensors[name]
            value = np.array(self.values[name], tensor.dtype, order="C")
            assert value.shape == tensor.shape, name
            arguments.append(runtime.tensor(value))
        results = self._machine[function](*arguments)
        self.values |= {n: r.numpy() for n, r in zip(signature.results, results, strict=True)}

    def step(self, data: Array, labels: Array, *, learning_rate: float) -> float:
        rate = np.array(learning_rate, np.float32)
        self.call("step", {self._input: data, LABELS: labels, LEARNING_RATE: rate})
        return float(self.values[LOSS])

    def evaluate(self, data: Array) -> Array:
        self.call("evaluate", {self._input: data})
        (name,) = (n for n in self.built.functions["evaluate"].results if n.startswith(EVALUATE_PREFIX))
        return self.values[name]

    @property
    def _input(self) -> str:
        (name,) = (n for n in self.built.functions["evaluate"].arguments if n not in self.built.initial)
        return name


def stepper(proto: Any, options: TrainOptions) -> Stepper:
    """The model imported and built, ready to train."""
    return Stepper(build_step(import_model(proto, name="model", batch=options.batch), options))
