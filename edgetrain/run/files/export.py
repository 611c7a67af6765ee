"""The trained model as ONNX: the same graph, new weights; adapters merged into the weights they stand beside."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgetrain.dataset.reading import Scaling
from edgetrain.files.sealed import MODEL_SEAL, sealed_model
from edgetrain.files.secret_key import SecretKey
from edgetrain.graph.adapters import Beside, merge_adapters
from edgetrain.model.tensor_names import onnx_name
from edgetrain.run.engines.engine import Array
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
) -> None:
    """Writes `model` with the values of `parameters`, by their names in the graph, in place of its initializers.

    What `adapters` hold is merged first, so that the file needs nothing of them to run. With a `scaling` of the targets
    the graph's `output` gives values in their units. `metadata` becomes properties of the model, beside those that it
    has under other keys.
    Raises `UnsupportedError` for a weight that has no place in the file, `DeviceError` when the disk refuses; an older
    file at `out` then stays as it was.
    """
    import onnx  # here: the training loop itself runs without it

    from edgetrain.model.scaled_output import append_scaling
    from edgetrain.model.write_back import write_weights

    proto = onnx.load(str(model))
    merged = merge_adapters(parameters, adapters)
    write_weights(proto, {onnx_name(name): value for name, value in merged.items()})
    if scaling is not None and not scaling.is_identity:
        append_scaling(proto, output, mean=scaling.mean, std=scaling.std)
    _set_properties(proto, metadata)
    with protected_file(out, key) as file:
        file.write(sealed_model(proto.SerializeToString(deterministic=True)))


def _set_properties(proto: Any, properties: Mapping[str, str]) -> None:
    dropped = {*properties, MODEL_SEAL}  # the seal of the file that the model was read from
    others = {entry.key: entry.value for entry in proto.metadata_props if entry.key not in dropped}
    del proto.metadata_props[:]
    for key, value in (*others.items(), *sorted(properties.items())):
        proto.metadata_props.add(key=key, value=value)
