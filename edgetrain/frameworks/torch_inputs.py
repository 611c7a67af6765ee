"""A PyTorch module, and a batch as it takes it: found by calling it with the forms that a sample can have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain.dataset.convert import Conversion, arranged
from edgetrain.dataset.samples import Array, Dataset
from edgetrain.errors import UsageError
from edgetrain.recipes import Recipe

_NUMBERS = "biuf"  # NumPy's kinds
_LEAST_ROWS = 2  # a batch of one is where exporters take the batch for a constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Tensors by position, then by keyword; `names` are those of all, as they go into the file."""

    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]
    names: tuple[str, ...]

    @property
    def tensors(self) -> tuple[Any, ...]:
        """All of them, in the order of `names`."""
        return (*self.positional, *self.keywords.values())


def is_torch_module(model: object) -> bool:
    """Whether it is an `nn.Module`. Does not import torch."""
    return any(c.__name__ == "Module" and c.__module__.startswith("torch.nn") for c in type(model).__mro__)


def name_of_module(module: Any) -> str:
    """`tiny-res-net` of a `TinyResNet`."""
    words = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+", type(module).__name__)
    return "-".join(words).lower() or "module"


def training_rows(data: Dataset, recipe: Recipe) -> list[Any]:
    """As many training samples as a batch has, arranged as in training."""
    count = min(recipe.train.batch, len(data.train))
    conversion = Conversion.of(recipe.data)
    return [arranged(data.train.features[i], conversion) for i in range(count)]


def sample_rows(sample: Any, recipe: Recipe) -> list[Any]:
    """A batch of one sample, an array or a mapping of arrays by name. Raises `UsageError` where there is none."""
    if sample is None:
        raise UsageError(
            "planning for a PyTorch module needs a sample",
            why="the shapes of its activations depend on it",
            fix="pass sample=x[0], say: one sample, without the batch",
        )
    given = {n: np.asarray(v) for n, v in sample.items()} if isinstance(sample, Mapping) else np.asarray(sample)
    return [arranged(given, Conversion.of(recipe.data))] * recipe.train.batch


def fitting_call(module: Any, samples: Sequence[Any]) -> Call:
    """The first call that the module accepts. Raises `UsageError` with what it said to each."""
    rows = [samples[i % len(samples)] for i in range(max(_LEAST_ROWS, len(samples)))]
    problems = []
    for call in _named_calls(module, rows) if isinstance(rows[0], Mapping) else _calls(module, rows):
        problem = _problem(module, call)
        if problem is None:
            return call
        shown = ", ".join(f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in call.tensors)
        problems.append(f"{shown}: {problem}")
    raise UsageError(
        f"`{type(module).__name__}` does not accept the data",
        why="; ".join(problems) or "no input of it has a name that the data has",
        fix="pass data whose samples have the shape that its `forward` takes, without the batch",
    )


def _problem(module: Any, call: Call) -> str | None:
    import torch

    try:
        with torch.no_grad():
            module(*call.positional, **call.keywords)
    except Exception as error:  # whatever a module raises for what it cannot take
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return None


def _calls(module: Any, rows: Sequence[Any]) -> Iterator[Call]:
    (name, *_) = (*_parameters(module), "x")
    for batch in _forms(np.stack([np.asarray(row) for row in rows])):
        yield Call(positional=(_tensor(batch),), keywords={}, names=(name,))


def _forms(batch: Array) -> Iterator[Array]:
    """What a sample can become, the likeliest first: `edgetrain.dataset.convert` makes the same of it in training."""
    if batch.dtype.kind not in _NUMBERS:
        raise UsageError(
            f"the samples hold {'texts' if batch.dtype.kind in 'US' else batch.dtype}, not numbers",
            why="a module takes tensors, and what it makes of anything else is not known",
            fix="turn them into numbers first, like texts into token ids, or export the module to ONNX yourself",
        )
    is_whole = batch.dtype.kind in "iub"
    values = batch.astype(np.float32) / np.float32(255) if batch.dtype == np.uint8 else batch.astype(np.float32)
    shapes = [batch.shape]
    if batch.ndim == 3:  # a grey picture, or a row of feature vectors
        shapes.insert(0 if batch.dtype == np.uint8 else 1, (len(batch), 1, *batch.shape[1:]))
    flat = (len(batch), int(np.prod(batch.shape[1:])))
    shapes += [flat] if flat not in shapes else []
    if is_whole and batch.dtype != np.uint8:
        yield batch.astype(np.int64)
    for shape in shapes:
        yield values.reshape(shape)
    if batch.dtype == np.uint8:
        yield batch.astype(np.int64)


def _named_calls(module: Any, rows: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    batches = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    parameters = _parameters(module)
    taken = [name for name in parameters if name in batches] if parameters else list(batches)
    if not taken:
        if len(batches) == 1:
            yield from _calls(module, [next(iter(row.values())) for row in rows])
        return
    tensors = {name: _tensor(next(_forms(batches[name]))) for name in taken}
    leading = list(parameters)[: len(taken)] == taken
    yield Call(
        positional=tuple(tensors.values()) if leading else (),
        keywords={} if leading else tensors,
        names=tuple(taken),
    )


def _parameters(module: Any) -> tuple[str, ...]:
    """Names of what `forward` takes by position or name; none where it takes anything."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        found = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in found if p.kind in kinds)


def _tensor(batch: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(batch))
