"""Binding a model's inputs: every dimension becomes a number, and an input that only chooses a path a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from edgetrain.errors import ModelError
from edgetrain.model.load import require_text
from edgetrain.model.model import Array
from edgetrain.recipes import MOST_BATCH

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundInputs:
    """What is fed (`shapes`, `dtypes`) and what is settled (`values`).

    `rebound` says that the file fixes a batch of 1 which was replaced: constants inside may still speak of 1.
    """

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    values: Mapping[str, Array]
    rebound: bool
    rewrites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    name: str
    dtype: str
    has_shape: bool
    dims: tuple[int, ...]  # 0 where the file gives no number
    symbols: tuple[str, ...]  # "" where the file gives no name

    @property
    def shown(self) -> list[str]:
        return [s or (str(d) if d else "?") for s, d in zip(self.symbols, self.dims, strict=True)]


def bind_inputs(
    graph: Any, stored: frozenset[str], *, batch: int, shapes: Mapping[str, Sequence[int]] | None = None
) -> BoundInputs:
    """The inputs of `graph` for a batch, without those that are `stored` initializers.

    A dimension that has the batch's name is the batch wherever it appears. `shapes` gives an input's dimensions; a
    scalar input has none, so what is given there (its last number) is its value. Raises `ModelError` for an input
    whose shape stays unknown or contradicts `batch`.
    """
    declared = [_declared(v) for v in graph.input if v.name not in stored]
    given = {n: tuple(int(d) for d in s) for n, s in (shapes or {}).items()}
    unknown = sorted(set(given) - {d.name for d in declared})
    problems = [f"there is no input `{n}`" for n in unknown]
    rebound = batch != 1 and all(d.dims[:1] == (1,) for d in declared if d.dims and d.name not in given)
    symbol = next((d.symbols[0] for d in declared if d.dims), "")
    bound: dict[str, tuple[int, ...]] = {}
    values: dict[str, Array] = {}
    rewrites: list[str] = []
    for i, entry in enumerate(declared):
        if entry.has_shape and not entry.dims and entry.name in given:
            values[entry.name] = np.array(given[entry.name][-1], entry.dtype)
            rewrites.append(f"input `{entry.name}` is fixed at {given[entry.name][-1]}")
            continue
        shape = _bind(entry, given.get(entry.name), batch=batch, symbol=symbol, rebound=rebound)
        bound[entry.name] = shape
        problems += _problems(entry, shape, batch=batch, leads=i == 0, was_given=entry.name in given)
    if problems:
        first = next((d for d in declared if d.name in bound), None)
        shape = bound[first.name] if first and first.name not in given else ()
        is_fixed = len(problems) == 1 and all(d > 0 for d in shape) and shape[:1] not in ((), (batch,))
        is_fixed = is_fixed and shape[0] <= MOST_BATCH
        raise _unsettled(problems, [f"{d.name}: {d.shown}" for d in declared], batch=shape[0] if is_fixed else None)
    if not bound:
        raise ModelError("the model has no inputs", fix="export the model with its input as a graph input")
    rebound = rebound and any(d.dims[:1] == (1,) for d in declared if d.name in bound and d.name not in given)
    if rebound:
        rewrites.append(f"the batch, fixed at 1 in the file, became {batch}")
    dtypes = {d.name: d.dtype for d in declared if d.name in bound}
    return BoundInputs(shapes=bound, dtypes=dtypes, values=values, rebound=rebound, rewrites=tuple(rewrites))


def _declared(value: Any) -> _Declared:
    require_text(value.name)
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"input `{value.name}` is not a tensor", fix="export the model with tensors as inputs")
    try:
        dtype = "float32" if tensor.elem_type in _HALF else str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    except (KeyError, TypeError) as error:
        raise ModelError(
            f"input `{value.name}` has the unknown element type {tensor.elem_type}", fix="export the model again"
        ) from error
    if np.dtype(dtype).kind not in "fiub":
        raise ModelError(f"input `{value.name}` holds {dtype}, not numbers", fix="export the model without it")
    dims = tensor.shape.dim
    return _Declared(
        name=value.name,
        dtype=dtype,
        has_shape=tensor.HasField("shape"),
        dims=tuple(max(int(d.dim_value), 0) if d.HasField("dim_value") else 0 for d in dims),
        symbols=tuple(d.dim_param for d in dims),
    )


def _bind(
    entry: _Declared, given: tuple[int, ...] | None, *, batch: int, symbol: str, rebound: bool
) -> tuple[int, ...]:
    if given is not None:
        # A recipe writes dimensions without the batch; as many numbers as the input has dimensions are all of them.
        return given[1:] if len(given) == len(entry.dims) + 1 else given
    shape = [batch if d == 0 and s and s == symbol else d for d, s in zip(entry.dims, entry.symbols, strict=True)]
    if shape and (shape[0] == 0 or rebound):
        shape[0] = batch
    if shape.count(0) == 1:  # a fixed first dimension and one unknown: a recurrent state, (layers, batch, features)
        shape[shape.index(0)] = batch if entry.dims[0] > 0 and not entry.symbols[shape.index(0)] else 0
    return tuple(shape)


def _problems(entry: _Declared, shape: tuple[int, ...], *, batch: int, leads: bool, was_given: bool) -> list[str]:
    if not entry.has_shape and not was_given:
        return [f"input `{entry.name}` has no shape"]
    if any(d <= 0 for d in shape):
        return [f"input `{entry.name}` has unknown dimensions {entry.shown}"]
    if entry.has_shape and len(shape) != len(entry.dims):
        return [f"input `{entry.name}` has {len(entry.dims)} dimensions, not {len(shape)}"]
    if entry.has_shape and any(d > 0 and d != s for d, s in zip(entry.dims[1:], shape[1:], strict=True)):
        return [f"input `{entry.name}` is {entry.shown} in the file, not {list(shape)}"]
    if leads and shape and shape[0] != batch:
        return [f"input `{entry.name}` has a fixed batch of {shape[0]}, not {batch}"]
    return []


def _unsettled(problems: Sequence[str], inputs: Sequence[str], *, batch: int | None) -> ModelError:
    """`batch`: the one that the file fixes, where nothing else is wrong."""
    sizes = "set its sizes without the batch, like `'model.inputs.NAME=[3, 224, 224]'`"
    setting = sizes if batch is None else f"set `train.batch={batch}`"
    return ModelError(
        "the model's input shapes are not settled: " + "; ".join(problems),
        why=f"a training graph is compiled for fixed sizes; the file declares {', '.join(inputs) or 'no inputs'}",
        fix=f"{setting}, or export the model with a dynamic first dimension",
    )
