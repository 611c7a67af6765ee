"""The trained model as ONNX: the same graph, new weights; adapters merged into the weights they stand beside."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgetrain.dataset.reading import Scaling
from edgetrain.files.sealed import MODEL_SEAL, with_seal
from edgetrain.files.secret_key import SecretKey
from edgetrain.graph.adapters import Beside, merge_adapters
from edgetrain.model.tensor_names import onnx_name
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.checkpoint import Release, nothing_to_release
from edgetrain.run.files.protected import protected_file


def write_trained_onnx(
    model: Path,
    parameters: Mapping[str, Array],
    out: Path,
    *,
    key: SecretKey | None = None,
    adapters: Iterable[Beside] = (),
    metadata: Mapping[str, str] = types.MappingProxyType({}),
    scaling: Scaling | None = None,
    output: str = "",
    release: Release = nothing_to_release,
) -> None:
    """Writes `model` with the values of `parameters`, by their names in the graph, in place of its initializers.

    Weights pass through memory one after the other; `release` is called between their pieces.
    What `adapters` hold is merged first, so that the file needs nothing of them to run. With a `scaling` of the targets
    the graph's `output` gives values in their units. `metadata` becomes properties of the model, beside those that it
    has under other keys.
    Raises `UnsupportedError` for a weight that has no place in the file, `DeviceError` when the disk refuses; an older
    file at `out` then stays as it was.
    """
    # Here: the training loop itself runs without ONNX.
    from edgetrain.model.outline import read_outline, serialised
    from edgetrain.model.scaled_output import append_scaling
    from edgetrain.model.write_back import write_weights

    outline = read_outline(model)
    merged = merge_adapters(parameters, adapters)
    write_weights(outline, {onnx_name(name): value for name, value in merged.items()})
    if scaling is not None and not scaling.is_identity:
        append_scaling(outline.proto, output, mean=scaling.mean, std=scaling.std)
    _set_properties(outline.proto, metadata)
    with protected_file(out, key) as file:
        for piece in with_seal(serialised(outline)):
            file.write(piece)
            release()


def _set_properties(proto: Any, properties: Mapping[str, str]) -> None:
    dropped = {*properties, MODEL_SEAL}  # the seal of the file that the model was read from
    others = {entry.key: entry.value for entry in proto.metadata_props if entry.key not in dropped}
    del proto.metadata_props[:]
    for key, value in (*others.items(), *sorted(properties.items())):
        proto.metadata_props.add(key=key, value=value)
