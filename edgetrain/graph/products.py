"""Finds weights that are an operand of a matmul, a Gemm or a convolution, where an adapter can be added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from edgetrain._tvm import shape_of
from edgetrain.graph.rewrite import Use, parameter_uses
from edgetrain.model.model import Model


class Layout(Enum):
    """How a weight is stored."""

    OUTPUTS_FIRST = auto()  # (outputs, inputs): Gemm with transB, MatMul behind a Transpose
    INPUTS_FIRST = auto()  # (inputs, outputs): MatMul
    KERNEL = auto()  # (outputs, inputs, height, width): an ungrouped convolution


@dataclass(frozen=True, kw_only=True)
class ProductWeight:
    """A weight all of whose uses are products of one layout."""

    name: str
    shape: tuple[int, ...]
    layout: Layout
    uses: tuple[Use, ...]

    @property
    def outputs_axis(self) -> int:
        return 1 if self.layout is Layout.INPUTS_FIRST else 0

    @property
    def outputs(self) -> int:
        return self.shape[self.outputs_axis]


def product_weights(model: Model) -> tuple[ProductWeight, ...]:
    """In the order of their first use. A weight with any other use is not among them."""
    by_weight: dict[str, list[Use]] = {}
    for use in parameter_uses(model):
        by_weight.setdefault(use.parameter, []).append(use)
    found = []
    for name, uses in by_weight.items():
        layout = _layout(uses, tuple(model.parameters[name].shape))
        if layout is not None and model.parameters[name].dtype.kind == "f":
            shape = tuple(int(d) for d in model.parameters[name].shape)
            found.append(ProductWeight(name=name, shape=shape, layout=layout, uses=tuple(uses)))
    return tuple(found)


def _layout(uses: Sequence[Use], shape: tuple[int, ...]) -> Layout | None:
    layouts = {_LAYOUT_OF_OP[u.op](u, shape) if u.op in _LAYOUT_OF_OP else None for u in uses}
    return layouts.pop() if len(layouts) == 1 else None


def _of_matmul(use: Use, shape: tuple[int, ...]) -> Layout | None:
    if use.position != 1 or len(shape) != 2 or len(shape_of(use.call.args[0])) < 2:
        return None
    if not use.views:
        return Layout.INPUTS_FIRST
    return Layout.OUTPUTS_FIRST if len(use.views) == 1 and _is_transpose(use.views[0]) else None


def _is_transpose(view: Any) -> bool:
    return view.op.name == "relax.permute_dims" and [int(a) for a in view.attrs.axes or (1, 0)] == [1, 0]


def _of_convolution(use: Use, shape: tuple[int, ...]) -> Layout | None:
    is_plain = use.position == 1 and not use.views and len(shape) == 4 and int(use.call.attrs.groups) == 1
    return Layout.KERNEL if is_plain else None


_LAYOUT_OF_OP: Mapping[str, Callable[[Use, tuple[int, ...]], Layout | None]] = {
    "relax.matmul": _of_matmul,
    "relax.nn.conv2d": _of_convolution,
}
