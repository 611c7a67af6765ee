"""Which parameters a run updates: everything, the head, biases, or names by glob."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from edgetrain._tvm import relax
from edgetrain.errors import UsageError
from edgetrain.model.model import Model

_WEIGHTED = ("relax.matmul", "relax.nn.conv2d", "relax.nn.conv2d_transpose")
_VIEWS = ("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.broadcast_to")
_RUNNING_STATISTICS = slice(3, 5)  # batch_norm(data, gamma, beta, mean, variance)


def running_statistics(model: Model) -> frozenset[str]:
    """Parameters that BatchNorm measures instead of learning."""
    found = set()
    for _, call in _calls(model):
        if call.op.name == "relax.nn.batch_norm":
            found |= {str(v.name) for v in list(call.args)[_RUNNING_STATISTICS] if isinstance(v, relax.Var)}
    return frozenset(found & set(model.parameters))


def select_trainable(model: Model, mode: str, names: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters to update, in the model's order. Raises `UsageError` when nothing is left."""
    select = SELECTORS.get(mode)
    if select is None:
        raise UsageError(f"unknown update.mode `{mode}`", fix=f"use one of: {', '.join(SELECTORS)}")
    statistics = running_statistics(model)
    floats = [n for n, a in model.parameters.items() if a.dtype.kind == "f" and n not in statistics]
    chosen = select(model, floats, names)
    if not chosen:
        raise UsageError(
            f"update.mode = '{mode}' selects none of the model's {len(floats)} parameters",
            why=f"globs {list(names)} match nothing" if mode == "names" else "",
            fix="`edgetrain inspect MODEL` lists the parameters' names; update.mode = 'full' trains all of them",
        )
    return tuple(chosen)


def _full(_model: Model, floats: Sequence[str], _names: Sequence[str]) -> list[str]:
    return list(floats)


def _by_name(_model: Model, floats: Sequence[str], globs: Sequence[str]) -> list[str]:
    return [n for n in floats if any(fnmatchcase(n, g) for g in globs)]


def _head(model: Model, floats: Sequence[str], _names: Sequence[str]) -> list[str]:
    """The last layer with weights, and every parameter used after it (its bias)."""
    origins = _parameter_origins(model)
    last: list[str] = []
    for _, call in _calls(model):
        used = [origins[a] for a in call.args if isinstance(a, relax.Var) and a in origins]
        if call.op.name in _WEIGHTED and used:
            last = []
        if call.op.name not in _VIEWS:
            last += used
    return [n for n in floats if n in last]


def _bias(model: Model, floats: Sequence[str], _names: Sequence[str]) -> list[str]:
    """Parameters that are only ever added, BatchNorm's shift included."""
    origins = _parameter_origins(model)
    added: set[str] = set()
    otherwise: set[str] = set()
    for _, call in _calls(model):
        for position, argument in enumerate(call.args):
            if not isinstance(argument, relax.Var) or argument not in origins or call.op.name in _VIEWS:
                continue
            is_shift = call.op.name == "relax.add" or (call.op.name == "relax.nn.batch_norm" and position == 2)
            (added if is_shift else otherwise).add(origins[argument])
    return [n for n in floats if n in added - otherwise]


def _calls(model: Model) -> list[tuple[Any, Any]]:
    return [
        (b.var, b.value)
        for block in model.function.body.blocks
        for b in block.bindings
        if isinstance(b.value, relax.Call) and hasattr(b.value.op, "name")
    ]


def _parameter_origins(model: Model) -> dict[Any, str]:
    """Variables that are a parameter or a mere view of one, with the parameter's name."""
    parameters = set(model.parameters)
    origins = {v: str(v.name) for v in model.function.params if str(v.name) in parameters}
    for var, call in _calls(model):
        if call.op.name in _VIEWS and call.args[0] in origins:
            origins[var] = origins[call.args[0]]
    return origins


SELECTORS: Mapping[str, Callable[[Model, Sequence[str], Sequence[str]], list[str]]] = {
    "full": _full,
    "head": _head,
    "bias": _bias,
    "names": _by_name,
}
