"""The first stage's result: what the graph builder differentiates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgetrain.value_bounds import InputBounds

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input the user feeds, with every dimension a number."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bounds: InputBounds | None = None  # of what it may hold, where that is a place in a table, or becomes one


@dataclass(frozen=True, kw_only=True)
class Model:
    """An imported model. `function` takes the inputs, then the parameters in the order of `parameters`."""

    name: str
    function: Any  # relax.Function, inference form
    module: Any  # tvm.IRModule that holds the PrimFuncs `function` may call
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]  # the first is the one that is trained
    parameters: Mapping[str, Array]  # by `graph_name` of the ONNX initializer, as are the names of `inputs`
    sources: Mapping[str, str]  # name of a bound variable -> the ONNX node it came from
    rewrites: tuple[str, ...]  # what the normalising pass changed, one line each
    warnings: tuple[str, ...] = ()  # what a user should know of

    def parameter_bytes(self) -> int:
        return sum(int(np.prod(a.shape)) * a.itemsize for a in self.parameters.values())
