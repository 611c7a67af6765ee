"""Names while a graph is imported: what each stands for, and how it becomes a tensor or a known array."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgetrain.model.model import Array


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """An array of the file, or folded from some. `learned` ones become parameters when a node computes with them."""

    name: str
    array: Array
    learned: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class DeferredNode:
    """A node of learned arrays alone, in the scope it was met in: emitted, or evaluated, only when it is asked for."""

    node: Any
    scope: ChainMap[str, Any] = field(repr=False)


@dataclass(frozen=True, eq=False, slots=True)
class Deferred:
    """One output of a deferred node."""

    maker: DeferredNode
    index: int


@dataclass(frozen=True, slots=True)
class Missing:
    """What a node that cannot be imported should have made."""


MISSING = Missing()
Value = Any  # Stored | Deferred | Missing | relax.Expr
Scope = ChainMap[str, Value]


def stored(name: str, array: Array, *, may_learn: bool) -> Stored:
    """`array` in the precision it is trained in; floating point arrays of more than one element are learned."""
    wide = _in_full_precision(array)
    learned = may_learn and bool(np.issubdtype(wide.dtype, np.floating)) and wide.size > 1
    return Stored(name, wide, learned)


def is_half(array: Array) -> bool:
    return array.dtype == np.float16 or str(array.dtype) == "bfloat16"


def _in_full_precision(array: Array) -> Array:
    return array.astype(np.float32) if is_half(array) else array
