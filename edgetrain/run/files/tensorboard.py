"""TensorBoard's event files: what `fit --tensorboard` writes for `tensorboard --logdir runs`.

The format is small: records with checksums (TFRecord) around a protobuf message with a step and named numbers. Written
here, it needs no TensorFlow and no TensorBoard on the device. https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import functools
import os
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from edgetrain.files.atomic_file import disk_errors
from edgetrain.files.private import make_private_folder, open_private
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain_tuner import disk

TENSORBOARD = "tensorboard"
_VERSION = b"brain.Event:2"
_START = 1  # SessionLog.START: what was logged from this step on, before a run was resumed, no longer counts
_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_STEP_TAGS: Mapping[str, str] = {
    "loss": "step/loss",
    "learning_rate": "step/learning_rate",
    "seconds": "step/seconds",
}
_LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]  # a metric is of 64 bits, the format's numbers of 32
_FLUSH_STEPS = 100  # flash wears with every write; the end of an epoch flushes as well


class TensorBoard(Callback):
    """Writes an event file to `folder`: `step/loss` and others after each step, `epoch/...` after each epoch.

    A run that resumes begins another file there, which takes back the steps that were logged and lost. One folder
    holds one run: TensorBoard shows folders beside each other. Raises `DeviceError` when the disk refuses.
    """

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = Path(folder)
        self._clock = clock
        self._path = self._folder
        self._file: BinaryIO | None = None
        self._step = 0

    def on_train_begin(self, logs: Logs) -> None:
        self._step = int(logs["step"])
        # TensorBoard reads files in the order of their names.
        nanoseconds = round(self._clock() * 1e9)
        self._path = self._folder / f"events.out.tfevents.{nanoseconds // 10**9:010d}.{nanoseconds % 10**9:09d}"
        with disk_errors(self._path):
            make_private_folder(self._folder)
            self._file = disk.stream(open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        self._write(_text(3, _VERSION))
        self._write(_integer(2, self._step + 1) + _text(7, _integer(1, _START)), flush=True)

    def on_step_end(self, step: int, logs: Logs) -> None:
        self._step = step
        values = {tag: logs[name] for name, tag in _STEP_TAGS.items() if name in logs}
        self._write(_scalars(step, values), flush=step % _FLUSH_STEPS == 0)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._write(_scalars(self._step, {f"epoch/{name}": value for name, value in logs.items()}), flush=True)

    def on_train_end(self, logs: Logs) -> None:
        if self._file is not None:
            with disk_errors(self._path), self._file:
                self._file.flush()
                disk.sync(self._file.fileno())
            self._file = None

    def _write(self, event: bytes, *, flush: bool = False) -> None:
        if self._file is None:
            return
        with disk_errors(self._path):
            self._file.write(_record(struct.pack("<Bd", 1 << 3 | 1, self._clock()) + event))  # field 1: wall time
            if flush:
                self._file.flush()


def _scalars(step: int, values: Mapping[str, float]) -> bytes:
    """The fields of an event: 2, its step, and 5, its summary, whose values have a tag (1) and a number (2)."""
    summary = b""
    for tag, value in values.items():
        number = max(-_LARGEST, min(value, _LARGEST))
        summary += _text(1, _text(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, number))
    return _integer(2, step) + _text(5, summary)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits to a byte, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*groups, value))


def _record(data: bytes) -> bytes:
    """A TFRecord: the length and the data, each with its checksum."""
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)
