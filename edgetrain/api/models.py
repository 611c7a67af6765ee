"""What `fit` and `plan` take for a model, and the recipe that follows: a name, a path, a model in memory, a module."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgetrain.api.overrides import override_texts, toml_text
from edgetrain.errors import UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.frameworks.torch_inputs import is_torch_module, name_of_module
from edgetrain.pipeline.source import is_model, recipe_of
from edgetrain.planner.plan import Budget
from edgetrain.recipes import Recipe, recipe_for_model
from edgetrain.run.files.evaluation_data import IN_MEMORY
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.units import Bytes, parse_bytes

_ORIGINAL = ".original"  # a model that was in memory, kept beside its run


def is_named(model: Any) -> bool:
    return isinstance(model, str | Path)


def name_of(proto: Any) -> str:
    """A model in memory goes by its graph's name. Raises `UsageError` for what is no model."""
    if not hasattr(proto, "SerializeToString"):
        raise UsageError(
            f"`{type(proto).__name__}` is not a model",
            fix="pass the path of an .onnx file, a recipe's name, an onnx.ModelProto, or a PyTorch module",
        )
    return re.sub(r"[^\w.-]+", "-", str(proto.graph.name)).strip("-.") or "model"


def write_model(proto: Any, folder: Path) -> Path:
    path = original_of(folder, name_of(proto))
    with replaced_file(path) as file:
        file.write(proto.SerializeToString())
    return path


def export(
    module: Any, rows: Sequence[Any], path: Path, overrides: Mapping[str, object]
) -> tuple[Path, dict[str, object]]:
    """The module's file, and the overrides that train what PyTorch would."""
    from edgetrain.frameworks.torch_module import export_module  # onnx loads here

    exported = export_module(module, rows, path)
    if "model_classes" not in overrides:
        overrides = {"model_keep_head": True, **overrides}  # its trained weights go back into the module
    return exported.path, exported.with_update(overrides)


def run_name(model: Any, overrides: Mapping[str, object], data_source: str | None) -> str:
    if is_torch_module(model):
        return name_of_module(model)
    return python_recipe(str(model), overrides, data_source=data_source).name if is_named(model) else name_of(model)


@contextlib.contextmanager
def own_model(name: str, folder: Path) -> Iterator[Path]:
    """Where a model that was in memory is kept beside its run. A run that does not begin leaves what was there."""
    path, recipe = original_of(folder, name), RunFolder(folder).recipe
    before, began = path.read_bytes() if path.is_file() else None, _stamp(recipe)
    try:
        yield path
    except BaseException:
        if _stamp(recipe) == began:
            _put_back(path, before)
        raise


def _stamp(path: Path) -> tuple[int, int] | None:
    """Another one for every file that takes the place of `path`."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def _put_back(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    elif path.read_bytes() != content:
        with replaced_file(path) as file:
            file.write(content)


def original_of(folder: Path, name: str) -> Path:
    return folder / f"{name}{_ORIGINAL}.onnx"


def recipe_of_module(module: Any, overrides: Mapping[str, object], data_source: str | None) -> Recipe:
    """The recipe for a module that is not exported yet: what its data and its batch are."""
    texts = override_texts(overrides)
    if data_source is not None and "data_source" not in overrides:
        texts = (f"data.source={toml_text(data_source)}", *texts)
    return recipe_for_model(f"{name_of_module(module)}.onnx", texts, needs_data=data_source is None)


def python_recipe(source: str, overrides: Mapping[str, object], *, data_source: str | None) -> Recipe:
    """`data_source` None leaves the data to the recipe."""
    texts = override_texts(overrides)
    if data_source is not None and "data_source" not in overrides:
        texts = (f"data.source={toml_text(data_source)}", *texts)
    recipe = recipe_of(source, texts, needs_data=True)
    return dataclasses.replace(recipe, name=recipe.name.removesuffix(_ORIGINAL)) if is_model(source) else recipe


def source_of(data: Any) -> str | None:
    match data:
        case None:
            return None
        case str() | Path():
            return str(data)
    return IN_MEMORY


def budget_of(budget: str | int | None) -> Budget:
    if budget is None:
        return Budget()
    return Budget(memory_bytes=parse_bytes(budget) if isinstance(budget, str) else Bytes(budget))
