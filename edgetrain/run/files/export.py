"""The trained model as ONNX: the same graph, new weights; adapters merged into the weights they stand beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from edgetrain.files.atomic_file import replaced_file
from edgetrain.graph.adapters import Beside, merge_adapters
from edgetrain.run.engines.engine import Array


def write_trained_onnx(
    model: Path, parameters: Mapping[str, Array], out: Path, *, adapters: Iterable[Beside] = ()
) -> None:
    """Writes `model` with the values of `parameters` in place of its initializers of the same names.

    What `adapters` hold is merged first, so that the file needs nothing of them to run.
    Raises `UnsupportedError` for a weight that has no place in the file, `DeviceError` when the disk refuses; an older
    file at `out` then stays as it was.
    """
    import onnx  # here: the training loop itself runs without it

    from edgetrain.model.write_back import write_weights

    proto = onnx.load(str(model))
    write_weights(proto, merge_adapters(parameters, adapters))
    with replaced_file(out) as file:
        file.write(proto.SerializeToString(deterministic=True))
