"""A wav file: its header, and the features of its samples."""

from __future__ import annotations

from edgetrain.dataset.wav import read_wavs
from edgetrain.recipes import AudioSection
from tests.fuzz.harness import documented, file_of

WORDS = (
    b"RIFF",
    b"WAVE",
    b"fmt ",
    b"data",
    b"LIST",
    b"\x10\x00\x00\x00",
    b"\xfe\xff",
    b"\x01\x00\x01\x00",
    b"\xff\xff\xff\xff",
)


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "class/1.wav") as path:
        part, _, _ = read_wavs(path.parent.parent, AudioSection(seconds=0.1))
        _ = part.features[0]
