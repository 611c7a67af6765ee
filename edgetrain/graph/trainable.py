"""Which parameters a run updates: all, the last layers, biases, norms, names by glob, or the best within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from edgetrain._tvm import relax
from edgetrain.errors import UsageError
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.rewrite import Use, calls, parameter_uses
from edgetrain.graph.sparse import choose_sparse
from edgetrain.model.model import Model
from edgetrain.model.tensor_names import onnx_name

WEIGHTED = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv2d_transpose")
_NORMS = (
    "relax.nn.batch_norm",
    "relax.nn.layer_norm",
    "relax.nn.group_norm",
    "relax.nn.instance_norm",
    "relax.nn.rms_norm",
)
_RUNNING_STATISTICS = slice(3, 5)  # batch_norm(data, gamma, beta, mean, variance)


def running_statistics(model: Model) -> frozenset[str]:
    """Parameters that BatchNorm measures instead of learning."""
    found = set()
    for _, call in calls(model):
        if call.op.name == "relax.nn.batch_norm":
            found |= {str(v.name) for v in list(call.args)[_RUNNING_STATISTICS] if isinstance(v, relax.Var)}
    return frozenset(found & set(model.parameters))


def learnable(model: Model) -> tuple[str, ...]:
    """Every parameter that a gradient may change, in the model's order."""
    statistics = running_statistics(model)
    return tuple(n for n, a in model.parameters.items() if a.dtype.kind == "f" and n not in statistics)


def select_trainable(model: Model, options: TrainOptions) -> tuple[str, ...]:
    """Names of the parameters to update, in the model's order. Raises `UsageError` when nothing is left.

    In modes `lora` and `sparse` these are the ones trained whole; beside what those add they may be none.
    """
    mode = options.update_mode
    select = SELECTORS.get(mode)
    if select is None:
        raise UsageError(f"unknown update.mode `{mode}`", fix=f"use one of: {', '.join(SELECTORS)}")
    candidates = learnable(model)
    chosen = set(select(model, candidates, options))
    if not chosen and mode not in ("lora", "sparse"):
        raise UsageError(
            f"update.mode = '{mode}' selects none of the model's {len(candidates)} parameters",
            why=f"globs {list(options.update_names)} match nothing" if mode == "names" else "",
            fix="`edgetrain inspect MODEL --parameters` lists their names; `update.mode=full` trains all of them",
        )
    return tuple(n for n in candidates if n in chosen)


def layers(model: Model) -> tuple[tuple[str, ...], ...]:
    """The learnable parameters in groups, in the order of their last use: a weight and what comes before the next one.

    A parameter that is used before any weight (an embedding, a position) is in the first group.
    """
    candidates = set(learnable(model))
    group_of: dict[str, int] = {}
    count = 0
    begun: Any = None
    for use in parameter_uses(model):
        if use.op in WEIGHTED and use.call is not begun and use.parameter in candidates:
            begun, count = use.call, count + 1
        if use.parameter in candidates:
            group_of[use.parameter] = count
    groups: dict[int, list[str]] = {}
    for name, group in group_of.items():
        groups.setdefault(group, []).append(name)
    return tuple(tuple(groups[group]) for group in sorted(groups))


def _full(_model: Model, candidates: Sequence[str], _options: TrainOptions) -> Sequence[str]:
    return candidates


def _by_name(_model: Model, candidates: Sequence[str], options: TrainOptions) -> Sequence[str]:
    return [n for n in candidates if any(fnmatchcase(onnx_name(n), glob) for glob in options.update_names)]


def _head(model: Model, _candidates: Sequence[str], _options: TrainOptions) -> Sequence[str]:
    """The last layer with weights, and every parameter used after it (its bias)."""
    return [n for layer in layers(model)[-1:] for n in layer]


def _last(model: Model, _candidates: Sequence[str], options: TrainOptions) -> Sequence[str]:
    if options.update_last < 1:
        raise UsageError(f"update.last = {options.update_last} is less than 1 layer", fix="set `update.last=1` or more")
    return [n for layer in layers(model)[-options.update_last :] for n in layer]


def _bias(model: Model, candidates: Sequence[str], _options: TrainOptions) -> Sequence[str]:
    """Parameters that are only ever added, BatchNorm's shift included."""
    return _only(model, candidates, lambda use: use.op == "relax.add" or _is_norm_shift(use))


def _is_norm_shift(use: Use) -> bool:
    return use.op == "relax.nn.batch_norm" and use.position == 2


def _norms(model: Model, candidates: Sequence[str], _options: TrainOptions) -> Sequence[str]:
    """Scales and shifts of normalisations, those that the exporter wrote out op by op included."""
    definitions = dict(calls(model))
    return _only(model, candidates, lambda use: use.op in _NORMS or _is_written_out_norm(use, definitions))


def _is_written_out_norm(use: Use, definitions: Mapping[Any, Any]) -> bool:
    """Whether the parameter scales (x − mean) / √…, or is added to that product."""
    if use.op not in ("relax.multiply", "relax.add") or use.position > 1:
        return False
    other = definitions.get(use.call.args[1 - use.position])
    if other is None:
        return False
    if use.op == "relax.multiply":
        return _divides_by_root(other, definitions)
    factors = [definitions.get(a) for a in other.args] if other.op.name == "relax.multiply" else []
    return any(f is not None and _divides_by_root(f, definitions) for f in factors)


def _divides_by_root(call: Any, definitions: Mapping[Any, Any]) -> bool:
    names = [str(definitions[a].op.name) if a in definitions else "" for a in call.args if isinstance(a, relax.Var)]
    return (call.op.name == "relax.divide" and names[1:] == ["relax.sqrt"]) or (
        call.op.name == "relax.multiply" and "relax.rsqrt" in names
    )


def _only(model: Model, candidates: Sequence[str], is_wanted: Callable[[Use], bool]) -> Sequence[str]:
    """The candidates all of whose uses are wanted ones."""
    wanted: set[str] = set()
    otherwise: set[str] = set()
    for use in parameter_uses(model):
        (wanted if is_wanted(use) else otherwise).add(use.parameter)
    return [n for n in candidates if n in wanted - otherwise]


def _sparse(model: Model, candidates: Sequence[str], options: TrainOptions) -> Sequence[str]:
    return choose_sparse(model, candidates, options).whole


SELECTORS: Mapping[str, Callable[[Model, Sequence[str], TrainOptions], Sequence[str]]] = {
    "full": _full,
    "head": _head,
    "bias": _bias,
    "norms": _norms,
    "last-k": _last,
    "names": _by_name,
    "lora": _by_name,
    "sparse": _sparse,
}
