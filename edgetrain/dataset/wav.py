"""Reads wav clips as log-mel features: a folder for each class, or a CSV file that lists them.

    sounds/anna/1.wav   sounds/anna/more/2.wav   sounds/ben/1.wav
    clips.csv:  file,label,group

Clips are opened when they are needed.
"""

from __future__ import annotations

import wave
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.csv import number_labels, opened_csv
from edgetrain.dataset.folders import class_files
from edgetrain.dataset.log_mel import LogMel, log_mel
from edgetrain.dataset.samples import Array, Part, normal_labels
from edgetrain.dataset.table import find_label
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular
from edgetrain.recipes import AudioSection

_FILE, _GROUP = "file", "group"
# The `wave` module raises the last one, without a word, for a chunk that says it is longer than the file.
_BROKEN = (wave.Error, EOFError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """Log-mel features by index, float32 of the shape (mels, frames)."""

    paths: tuple[Path, ...]
    settings: LogMel

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any, /) -> Array:
        with opened(self.paths[int(index)]) as recording:
            return log_mel(recording, self.settings)


def read_wavs(
    path: Path, audio: AudioSection, *, label: str = "", exclude: Sequence[str] = ()
) -> tuple[Part, tuple[str, ...], Array | None]:
    """The clips, the names of their classes, and the groups that the CSV file gives (None without)."""
    settings = log_mel_of(audio)
    if path.is_dir():
        found = class_files(path, (".wav",), exclude=exclude)
        clips = Clips(paths=found.paths, settings=settings)
        return Part(features=clips, labels=np.array(found.labels, np.int64)), found.class_names, None
    paths, words, groups = _read_manifest(path, label)
    values, names = number_labels(path, words)
    part = Part(features=Clips(paths=paths, settings=settings), labels=normal_labels(values, str(path)))
    return part, names, np.array(groups) if groups else None


def log_mel_of(audio: AudioSection) -> LogMel:
    return LogMel.of(
        sample_rate=audio.sample_rate,
        seconds=audio.seconds,
        window_s=audio.window_ms / 1000,
        hop_s=audio.hop_ms / 1000,
        mels=audio.mels,
    )


def _read_manifest(path: Path, label: str) -> tuple[tuple[Path, ...], list[str], list[str]]:
    paths: list[Path] = []
    words: list[str] = []
    groups: list[str] = []
    with opened_csv(path) as rows:
        header = [name.strip() for name in next(rows, [])]
        label_column = find_label(str(path), header, label)
        if _FILE not in header:
            raise DataError(f"{path} has no column `{_FILE}`", why=f"its columns are {', '.join(header)}")
        for row in filter(None, rows):
            if len(row) != len(header):
                raise DataError(f"{path}:{rows.line_num} has {len(row)} cells where the header has {len(header)}")
            clip = path.parent / row[header.index(_FILE)].strip()
            require_regular(clip, DataError)
            if not clip.is_file():
                raise DataError(f"{path}:{rows.line_num}: there is no file {clip}", fix="correct the path")
            paths.append(clip)
            words.append(row[label_column].strip())
            groups += [row[header.index(_GROUP)].strip()] if _GROUP in header else []
    if not paths:
        raise DataError(f"{path} is empty", why="there is no row below the header", fix="check `data.source`")
    return tuple(paths), words, groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """An open PCM file: the mean of its channels, −1 to 1. Samples are read from the file when they are asked for."""

    path: Path
    file: wave.Wave_read

    @property
    def rate(self) -> int:
        return self.file.getframerate()

    def __len__(self) -> int:
        return self.file.getnframes()

    def read(self, start: int, stop: int) -> Array:
        width, channels = self.file.getsampwidth(), self.file.getnchannels()
        self.file.setpos(start)
        data = self.file.readframes(stop - start)
        if len(data) != (stop - start) * width * channels:
            raise DataError(
                f"{self.path} ends before sample {stop}, its header says {len(self)} samples", fix="copy it again"
            )
        mixed: Array = _DECODERS[width](data).reshape(-1, channels).mean(axis=1)
        return mixed


@contextmanager
def opened(path: Path) -> Iterator[Recording]:
    """The recording while the context lasts. Raises `DataError` for a file that is cut short, or compressed."""
    require_regular(path, DataError)
    try:
        with wave.open(str(path), "rb") as file:
            width = file.getsampwidth()
            if width not in _DECODERS:
                raise DataError(f"{path} has {8 * width} bits a sample", fix="store it with 8, 16, 24 or 32 bits")
            if file.getframerate() <= 0:
                raise DataError(f"{path} has no sample rate", fix="copy it again")
            yield Recording(path=path, file=file)
    except _BROKEN as error:
        raise DataError(
            f"{path} is not a wav file that can be read",
            why=str(error) or "it ends before a part that its header speaks of",
            fix="remove the file, or store it as PCM with 8, 16, 24 or 32 bits",
        ) from error


def _decode_8(data: bytes) -> Array:
    return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128  # the only width that is unsigned


def _decode_24(data: bytes) -> Array:
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return _decode_32(wide.tobytes())


def _decode_16(data: bytes) -> Array:
    return np.frombuffer(data, "<i2") / 2.0**15


def _decode_32(data: bytes) -> Array:
    return np.frombuffer(data, "<i4") / 2.0**31


_DECODERS: Mapping[int, Callable[[bytes], Array]] = {1: _decode_8, 2: _decode_16, 3: _decode_24, 4: _decode_32}
