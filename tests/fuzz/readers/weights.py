"""Weights that a package brings: safetensors, or a PyTorch state file."""

from __future__ import annotations

from edgetrain.files.safetensors_file import read_safetensors
from edgetrain.model.torch_file import read_torch_state
from tests.fuzz.harness import documented, file_of

WORDS = (
    *(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b'"BF16"', b'"__metadata__":{}', b"\x00\x00\x00\x00"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n", b"storage"),
)


def one_input(data: bytes) -> None:
    with file_of(data, "weights") as path:
        with documented():
            read_safetensors(path)
        with documented():
            read_torch_state(path)
