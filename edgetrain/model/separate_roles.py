"""Tensors that an exporter stored once because they were equal become one parameter for each role and layer again.

Training must move each as the module's own training would. What is tied is decided by evidence, never by value alone:

1. Different roles are different tensors: BatchNorm's mean and variance, a scale, a shift, a bias, a matrix.
2. In one role, the exporter's own name for a tensor decides, then the module that reads it.
3. Without either, a vector belongs to the matrices next to it, and a matrix stays one.

Decision 0031 has the reasons and the experiments.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from edgetrain.errors import UsageError
from edgetrain.model.part_tensor import part_tensor
from edgetrain.model.tensor_uses import MATRIX, VECTOR, GraphIndex, TensorUse, is_temporary, last_name

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
# PyTorch's exporter merges equal tensors of up to so many elements (onnx_ir's DeduplicateInitializersPass).
_MERGED_ELEMENTS = 1024
_MOST_NAMES = 3  # in a message
_ADDS, _MULTIPLIES = ("Add", "Conv", "ConvTranspose", "FusedConv", "Gemm"), ("Mul",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """The rewritten model; `rewrites` has a line for each tensor, `warnings` what a user should know of."""

    model: Any
    rewrites: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A stored tensor with more than one use, and the uses that belong together."""

    name: str
    groups: tuple[tuple[TensorUse, ...], ...]

    @property
    def names(self) -> set[str]:
        return {self.name, *(use.label for group in self.groups for use in group if use.label)}


def separate_roles(proto: Any, *, separate: Sequence[str] = (), tie: Sequence[str] = ()) -> Separation:
    """A copy of `proto` where no tensor has two roles, and none is shared but by the model's own wish.

    `separate` and `tie` are globs over the names of shared tensors, for what the rules get wrong: one tensor for each
    node that reads it, or one for all of a role. Statistics stay apart from what is learned in any case.
    Raises `UsageError` for a glob that names no shared tensor.
    """
    shared = _find_shared(GraphIndex(proto), separate, tie)
    _require_matches(shared, {"model.separate": separate, "model.tie": tie})
    kept = [f"`{t.name}` stays one parameter, read by {len(t.groups[0])} nodes" for t in shared if len(t.groups) == 1]
    if len(kept) == len(shared):
        return Separation(model=proto, rewrites=tuple(kept))
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    index = GraphIndex(model)
    parted = [t for t in _find_shared(index, separate, tie) if len(t.groups) > 1]
    names = {tensor.name: part_tensor(index, tensor.name, tensor.groups) for tensor in parted}
    index.rebuild()
    rewrites = [f"`{name}` became a tensor for each use: {_listed(parts)}" for name, parts in names.items()]
    return Separation(model=model, rewrites=(*kept, *rewrites), warnings=(_told(names),))


def _find_shared(index: GraphIndex, separate: Sequence[str], tie: Sequence[str]) -> list[_Shared]:
    found = (_shared(index, name, separate, tie) for name in index.stored)
    return [tensor for tensor in found if tensor is not None]


def _told(parted: Mapping[str, Sequence[str]]) -> str:
    count = sum(len(parts) for parts in parted.values())
    names = list(parted)
    return (
        f"the exporter stored equal parameters once: {_listed(names)} became {count} tensors that train on their own "
        f'(model.tie = ["{names[0]}"] would tie the uses of one role)'
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _shared(index: GraphIndex, name: str, separate: Sequence[str], tie: Sequence[str]) -> _Shared | None:
    tensor = index.stored[name]
    elements = int(np.prod(tensor.dims))
    if tensor.data_type not in _FLOATS or elements <= 1 or len(uses := index.uses(name)) <= 1:
        return None
    labels = {name, *(use.label for use in uses)}
    is_asked = _matches(labels, separate), _matches(labels, tie)
    apart_by = _matrix_key if uses[0].role == MATRIX else _vector_key
    groups: dict[Hashable, list[TensorUse]] = {}
    for number, use in enumerate(uses):
        apart = apart_by(index, name, uses, use)
        if any(is_asked):
            apart = number if is_asked[0] else None
        groups.setdefault((use.role, apart), []).append(use)
    return _Shared(name=name, groups=tuple(map(tuple, _own_first(index, name, list(groups.values())))))


def _vector_key(index: GraphIndex, name: str, uses: Sequence[TensorUse], use: TensorUse) -> Hashable:
    """Which layer's vector it is, as far as the file tells."""
    if index.is_traced and not is_temporary(use.label or name):
        return use.label or name
    if use.module is not None:
        return use.module
    ops = {other.node.op_type for other in uses if other.role == VECTOR}
    if use.role == VECTOR and not (ops <= {*_ADDS} or ops <= {*_MULTIPLIES}):
        return None  # no bias, no written-out scale: a vector that one layer reads several times, as in Snake
    return index.nearest_weights(use.node)


def _matrix_key(index: GraphIndex, name: str, uses: Sequence[TensorUse], use: TensorUse) -> Hashable:
    """Matrices are equal by chance only where all their elements are, or where a layer was copied with its values."""
    if index.is_traced and not is_temporary(use.label or name):
        return use.label or name
    tensor = index.stored[name]
    is_known = all(other.module is not None for other in uses)
    # An embedding and a head are one tensor because the model says so: no copy of a layer is read in both ways.
    is_tied = len({other.is_table for other in uses}) > 1
    may_be_merged = index.is_traced or int(np.prod(tensor.dims)) <= _MERGED_ELEMENTS
    if (is_known and not is_tied and may_be_merged) or _is_constant(tensor):
        return use.module if use.module is not None else use.node.output[0]
    return None


def _is_constant(tensor: Any) -> bool:
    values = numpy_helper.to_array(tensor)
    return bool((values == values.reshape(-1)[0]).all())


def _own_first(index: GraphIndex, name: str, groups: list[list[TensorUse]]) -> Iterator[list[TensorUse]]:
    """The groups, first the one that the tensor is named after: it keeps the name."""

    def is_own(group: list[TensorUse]) -> bool:
        use = group[0]
        if index.is_traced:
            return not use.label
        return use.module is not None and name == f"{use.module}.{last_name(use, name)}"

    first = next((group for group in groups if is_own(group)), groups[0])
    yield first
    yield from (group for group in groups if group is not first)


def _matches(names: set[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def _require_matches(shared: Sequence[_Shared], asked: Mapping[str, Sequence[str]]) -> None:
    names = sorted(set().union(*(tensor.names for tensor in shared))) if shared else []
    wrong = [f"{key} = `{glob}`" for key, globs in asked.items() for glob in globs if not _matches(set(names), [glob])]
    if wrong:
        raise UsageError(
            f"no shared tensor is called {', '.join(wrong)}",
            why=f"tensors that several nodes read: {_listed(names) or 'none'}",
            fix="leave it out, or name one of these: `edgetrain inspect MODEL` lists what is shared",
        )
