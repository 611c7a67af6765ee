"""A kernel of a training step with NumPy's answer in double precision, and the rules that write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgetrain._tvm import PrimFunc, te
from edgetrain.graph.extract import Aliases

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """A kernel and what it has to compute. Outputs that are `in_place` overwrite the inputs of these numbers."""

    name: str
    compute: Callable[..., Any]  # TE: tensors of the inputs -> the output, or several; or the whole kernel
    inputs: tuple[tuple[int, ...], ...]
    expected: Callable[..., Any]  # NumPy: arrays of the inputs -> the output, or several
    vector_rule: str = "generic"
    scalar_rule: str = "generic"
    shared_rule: str = ""  # with vectors on several cores, where that is another one
    draw: Callable[[np.random.Generator], Sequence[Array]] | None = None
    dtypes: tuple[str, ...] = ()
    in_place: tuple[int, ...] = ()
    tolerance: float = 1e-5  # of the largest element
    relative: float = 0.0  # of each element, beside that
    needs_libm: bool = False  # calls what a bare-metal C library need not have
    function: Any = field(init=False)
    outputs: int = field(init=False)

    def __post_init__(self) -> None:
        dtypes = self.dtypes or ("float32",) * len(self.inputs)
        tensors = [te.placeholder(s, d, name=f"p{n}") for n, (s, d) in enumerate(zip(self.inputs, dtypes, strict=True))]
        made = self.compute(*tensors)
        if not isinstance(made, PrimFunc):
            made = te.create_prim_func([*tensors, *(made if isinstance(made, (list, tuple)) else [made])])
        object.__setattr__(self, "function", made)
        object.__setattr__(self, "outputs", len(made.params) - len(tensors))

    def rule_on(self, *, lanes: int, cores: int) -> str:
        if lanes == 1:
            return self.scalar_rule
        return self.shared_rule or self.vector_rule if cores > 1 else self.vector_rule

    @property
    def aliases(self) -> Aliases:
        """Of the kernel: which of its parameters are one tensor."""
        return tuple((read, len(self.inputs) + number) for number, read in enumerate(self.in_place))

    def arrays(self) -> Sequence[Array]:
        random = np.random.default_rng(7)
        if self.draw is not None:
            return self.draw(random)
        return [random.standard_normal(shape).astype(np.float32) for shape in self.inputs]

    def answers(self) -> list[Array]:
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in self.arrays()]
        made = self.expected(*wide)
        return list(made) if isinstance(made, (list, tuple)) else [made]
