"""What a device trained, back as ONNX: the bytes that it saved become the weights of a run's model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular
from edgetrain.files.sealed import parse_sealed
from edgetrain.graph.adapters import Beside, beside_from_json
from edgetrain.graph.ir import Role
from edgetrain.program.manifest import Manifest
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.export import write_trained_onnx
from edgetrain.run.files.trained import TrainedRun
from edgetrain.run.files.trained_onnx import trained_onnx
from edgetrain.run.predict.task import describe

_MERGED_MODES = ("lora", "sparse")  # update modes that train tensors beside the model's weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came back: how many of the parameters differ from those that the run ended with."""

    parameters: int
    changed: int


def import_weights(run: TrainedRun, trained: Path, out: Path, *, manifest: Manifest, shipped: bytes) -> Imported:
    """Writes the run's model with the parameters in `trained` to `out`.

    `trained` is what a device wrote: the first `EDGE_SAVED_BYTES` of the arena, or the whole of `parameters.bin`.
    `manifest` is that of the program that ran there, `shipped` what the run itself saved, from which it started.
    Raises `DataError` for bytes of another size, values that are no numbers, and a program of another model.
    """
    _require_same_model(run, manifest)
    saved = read_saved(trained, manifest)
    parameters = _tensors(saved, manifest, (Role.PARAMETER,))
    before = _tensors(shipped, run.program.manifest, (Role.PARAMETER,))
    described = describe(run.recipe, run.reading, run.program.graph, inputs=run.inputs, output=run.output)
    write_trained_onnx(run.folder.model, parameters, out, adapters=_adapters(run), metadata=described.to_metadata())
    changed = sum(not np.array_equal(value, before[name]) for name, value in parameters.items())
    return Imported(parameters=len(parameters), changed=changed)


def read_saved(path: Path, manifest: Manifest) -> bytes:
    """The parameters and state in the file. Raises `DataError` for another size, or values that are no numbers."""
    require_regular(path, DataError)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read", why=error.strerror or str(error), fix="check the path") from error
    sizes = {"saved": manifest.saved_bytes, "`parameters.bin`": manifest.parameters_bytes}
    if len(content) not in sizes.values():
        raise DataError(
            f"{path} has {len(content)} bytes, and this program saves {manifest.saved_bytes}",
            why="it was cut short, or another program wrote it",
            fix="save [0, EDGE_SAVED_BYTES) of the arena; for the program of another export give its folder: --program",
        )
    values = _tensors(content, manifest, (Role.PARAMETER, Role.STATE))
    broken = [name for name, value in values.items() if value.dtype.kind == "f" and not np.isfinite(value).all()]
    if broken:
        raise DataError(
            f"{path} holds NaN or infinity in {len(broken)} of {len(values)} tensors, `{broken[0]}` first",
            why="the training on the device diverged, or these bytes are not what the program saved",
            fix="train again with a lower learning rate, or copy the file again",
        )
    return content[: manifest.saved_bytes]


def _tensors(content: bytes, manifest: Manifest, roles: tuple[Role, ...]) -> dict[str, Array]:
    return {
        name: np.frombuffer(content[t.place_in_file], np.dtype(t.dtype).newbyteorder("<")).reshape(t.shape)
        for name, t in manifest.tensors.items()
        if t.role in roles
    }


def _require_same_model(run: TrainedRun, manifest: Manifest) -> None:
    trained_onnx(run.folder)
    own, other = (_shapes(m) for m in (run.program.manifest, manifest))
    if own != other:
        wrong = sorted(name for name in own.keys() | other.keys() if own.get(name) != other.get(name))
        raise DataError(
            f"the program does not train the model of `{run.folder.path}`",
            why=f"{len(wrong)} parameters differ in name, shape or type, `{wrong[0]}` first",
            fix="give the run that the program was exported from",
        )


def _shapes(manifest: Manifest) -> Mapping[str, tuple[tuple[int, ...], str]]:
    return {name: (t.shape, t.dtype) for name, t in manifest.tensors.items() if t.role is Role.PARAMETER}


def _adapters(run: TrainedRun) -> list[Beside]:
    """What is merged into the model's weights, as the run wrote it down."""
    if run.recipe.update.mode not in _MERGED_MODES:
        return []
    try:
        data = parse_sealed(run.folder.adapters.read_bytes())
        return [beside_from_json(adapter) for adapter in (data["adapters"] if isinstance(data, dict) else data)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"`{run.folder.adapters}` cannot be used",
            why=f"{error}; it says into which weights the trained tensors are merged",
            fix="train again with this version, or restore the file",
        ) from error
