"""An embedding and a head that a PyTorch module ties, where the exporter stored the head's transposed copy.

With constant folding, `Transpose(weight)` becomes a tensor of its own, and training would move the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgetrain.model.tensor_uses import GraphIndex, is_temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """The model, rewritten where there was something to tie, and a line for each pair."""

    model: Any
    rewrites: tuple[str, ...] = ()


def tie_copies(proto: Any, *, separate: Sequence[str] = ()) -> Tied:
    """Tables and the transposed copies of them that products read become one parameter again.

    Only copies that PyTorch's exporter named itself: what has a name of its own in the module was not tied there.
    Globs of `separate` keep theirs apart.
    """
    index = GraphIndex(proto)
    if not index.is_from_torch:
        return Tied(model=proto)
    matrices = [name for name, tensor in index.stored.items() if len(tensor.dims) == 2 and min(tensor.dims) > 1]
    copies = [name for name in matrices if is_temporary(name) and not _named(name, separate)]
    tables = [name for name in matrices if any(use.is_table for use in index.uses(name))] if copies else []
    pairs = [(copy, table) for copy in copies for table in tables if _is_transposed(index, copy, table)]
    if not pairs:
        return Tied(model=proto)
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    copied = {copy for copy, _ in pairs}
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in copied]
    turned = [helper.make_node("Transpose", [table], [copy], perm=[1, 0]) for copy, table in pairs]
    nodes = [*turned, *model.graph.node]
    for field, values in {"initializer": kept, "node": nodes}.items():
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(values)
    return Tied(model=model, rewrites=tuple(f"`{copy}` is `{table}` again, as in the module" for copy, table in pairs))


def _named(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _is_transposed(index: GraphIndex, copy: str, table: str) -> bool:
    one, other = index.stored[copy], index.stored[table]
    if tuple(one.dims) != tuple(other.dims)[::-1] or one.data_type != other.data_type:
        return False
    if any(use.is_table for use in index.uses(copy)):
        return False
    values = numpy_helper.to_array(one)
    return bool((values != values[0, 0]).any()) and np.array_equal(values, numpy_helper.to_array(other).T)
