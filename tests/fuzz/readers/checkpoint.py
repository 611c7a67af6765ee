"""A checkpoint: its header is changed and sealed again, since nothing without a fitting check sum is interpreted."""

from __future__ import annotations

import hashlib
from random import Random

from edgetrain.run.files.checkpoint import load_checkpoint, load_run_checkpoint, read_header, read_run_header
from tests.fuzz.harness import Change, documented, file_of
from tests.fuzz.mutations import mutate_json

_PREFIX, _DIGEST = 16, 32


def one_input(data: bytes) -> None:
    with file_of(data, "checkpoint.bin") as path:
        with documented():
            read_run_header(path.parent, program_sha256="0", saved_bytes=1)
        with documented():
            load_run_checkpoint(path.parent, memoryview(bytearray(8)), program_sha256="a" * 64)
        with documented():
            header = read_header(path)
            saved = memoryview(bytearray(min(header.payload_bytes, len(data))))
            load_checkpoint(path, saved, program_sha256=header.program_sha256)


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    length = int.from_bytes(data[8:_PREFIX], "little")
    header, payload = data[_PREFIX : _PREFIX + length], data[_PREFIX + length : -_DIGEST]
    if random.random() < 0.1 or not header:
        return change(data)
    header = mutate_json(header, random, change)
    if random.random() < 0.1:
        payload = change(payload)
    content = data[:8] + len(header).to_bytes(8, "little") + header + payload
    return content + hashlib.sha256(content).digest()
