"""One file that holds everything a run needs to go on as if it had never stopped.

    magic (8 bytes) | header length (8, little endian) | header (canonical JSON) | payload | sha256 of all before (32)

The payload is the engine's saved memory, streamed in pieces: a checkpoint never costs a second copy in RAM. A run
keeps two, `checkpoint.bin` and the one before it, and goes back to the older when the newer does not verify. With a
key all of that is the content of an encrypted file (`edgetrain.files.encrypted`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from edgetrain.errors import DataError, DeviceError
from edgetrain.files.atomic_file import disk_error, sync_directory
from edgetrain.files.encrypted import Readable, SealedFileError
from edgetrain.files.secret_key import SecretKey
from edgetrain.files.texts import parse_json
from edgetrain.run.files.plain_data import record_from_plain
from edgetrain.run.files.protected import fix_of, protected_file, reading
from edgetrain.run.loop.early_stopping import Best
from edgetrain.run.loop.running import ExactSum
from edgetrain.schema import LARGEST_INTEGER
from edgetrain.units import show_bytes
from edgetrain_tuner import disk

log = logging.getLogger(__name__)

FORMAT = "edgetrain.checkpoint/4"
# They list the losses of all steps and all validations; /2, of version 0.1, does not say what loss the best epoch had.
_WITH_HISTORY = ("edgetrain.checkpoint/3", "edgetrain.checkpoint/2")
NEWEST = "checkpoint.bin"
PREVIOUS = "checkpoint.previous.bin"
BEST = "best.bin"

_MAGIC = b"EDGETRN\n"  # the newline shows up damage by text-mode copies
_LENGTH_BYTES = 8
_DIGEST_BYTES = hashlib.sha256().digest_size
_PREFIX_BYTES = len(_MAGIC) + _LENGTH_BYTES
_CHUNK_BYTES = 1 << 20
_MOST_HEADER_BYTES = 1 << 30  # a damaged length must not make us allocate the machine away


Release = Callable[[], None]  # called between pieces of the saved memory: what was gone through may leave the process


def nothing_to_release() -> None:
    """Of memory that is no copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The metrics after one epoch (counted from 1), by name."""

    epoch: int
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come: with the saved memory, all that decides what its next steps do.

    Of one size however many steps were taken: what they were like is in the log.
    """

    step: int  # optimizer steps done
    position: tuple[int, int]  # (epoch, batch) to read next
    steps_per_epoch: int
    seed: int
    epoch_loss: tuple[float, ...] = ()  # the exact sum of the losses since the epoch began, as parts of an `ExactSum`
    validation: Validation | None = None  # the last one
    best: Best | None = None
    earlier: tuple[Validation, ...] = ()  # only of a file of an older format, which has them where the log has not


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a checkpoint says about its payload."""

    program_sha256: str
    payload_bytes: int
    progress: Progress

    def to_json(self) -> str:
        """Canonical: the same header gives the same bytes."""
        progress = {name: getattr(self.progress, name) for name in ("step", "position", "steps_per_epoch", "seed")}
        progress |= {
            "epoch_loss": _packed(self.progress.epoch_loss),
            "validation": asdict(self.progress.validation) if self.progress.validation is not None else None,
            "best": asdict(self.progress.best) if self.progress.best is not None else None,
        }
        data = {
            "format": FORMAT,
            "program_sha256": self.program_sha256,
            "payload_bytes": self.payload_bytes,
            "progress": progress,
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _packed(numbers: Sequence[float]) -> str:
    """To the last bit, as text of 11 bytes each, in little-endian order."""
    return base64.b64encode(np.asarray(numbers, dtype="<f8").tobytes()).decode()


def _unpacked(text: str) -> tuple[float, ...]:
    return tuple(np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").tolist())


class _DamageError(Exception):
    """The file is not what was written; the text says how it shows."""

    def __init__(self, text: str, *, fix: str = "restore the file from a copy") -> None:
        super().__init__(text)
        self.fix = fix


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def digest(self) -> bytes: ...


def save_checkpoint(
    path: Path,
    saved: memoryview,
    progress: Progress,
    *,
    program_sha256: str,
    key: SecretKey | None = None,
    keep_old_as: Path | None = None,
    release: Release = nothing_to_release,
) -> None:
    """Writes the checkpoint so that `path` holds the old one or the new one, whatever happens in between.

    With `keep_old_as` the old one moves there in the instant before the new one takes its place.

    Raises `DeviceError` when the disk refuses; files that were there before are intact.
    """
    payload = saved.cast("B")
    header = Header(program_sha256=program_sha256, payload_bytes=payload.nbytes, progress=progress)
    text = header.to_json().encode()
    digest = hashlib.sha256()
    with protected_file(path, key, role=_role_of(path), keep_old_as=keep_old_as) as file:
        for piece in (_MAGIC, len(text).to_bytes(_LENGTH_BYTES, "little"), text):
            digest.update(piece)
            file.write(piece)
        for start in range(0, payload.nbytes, _CHUNK_BYTES):
            chunk = payload[start : start + _CHUNK_BYTES]
            digest.update(chunk)
            file.write(chunk)
            release()
        file.write(digest.digest())


def save_run_checkpoint(
    out: Path,
    saved: memoryview,
    progress: Progress,
    *,
    program_sha256: str,
    key: SecretKey | None = None,
    release: Release = nothing_to_release,
) -> Path:
    """`save_checkpoint` as the run's newest; the one that was newest becomes the previous."""
    path = out / NEWEST
    previous = out / PREVIOUS
    save_checkpoint(
        path, saved, progress, program_sha256=program_sha256, key=key, keep_old_as=previous, release=release
    )
    return path


def read_header(path: Path, *, key: SecretKey | None = None) -> Header:
    """Verifies the whole file and returns its header. Raises `DataError` when it is missing or damaged."""
    try:
        return _verified(path, key)
    except _DamageError as damage:
        raise _damaged(path, damage) from damage


def _verified(path: Path, key: SecretKey | None) -> Header:
    with _opened(path) as file:
        return _verify(reading(file, key, _role_of(path)))


def _role_of(path: Path) -> str:
    """The newest checkpoint becomes the previous one by its name alone; no other file can take the place of one."""
    return NEWEST if path.name == PREVIOUS else path.name


def load_checkpoint(
    path: Path,
    saved: memoryview,
    *,
    program_sha256: str,
    key: SecretKey | None = None,
    release: Release = nothing_to_release,
) -> Progress:
    """Verifies the file to its last byte, then fills `saved` from it.

    Any `DataError` leaves `saved` as it was. The bytes are hashed once more on their way into `saved`: should the
    disk fail between the two readings, the error is a `DeviceError` and `saved` is not to be used.

    Raises `DataError` for a file that is missing, damaged, or of another program.
    """
    try:
        return _load(path, saved, program_sha256, key, release)
    except _DamageError as damage:
        raise _damaged(path, damage) from damage


def load_run_checkpoint(
    out: Path,
    saved: memoryview,
    *,
    program_sha256: str,
    key: SecretKey | None = None,
    release: Release = nothing_to_release,
) -> Progress:
    """`load_checkpoint` of the run's newest, or with a warning of the previous when the newest is damaged.

    After such a fall-back the previous *is* the newest: the next save must not push a good file out for a bad one.
    A sound checkpoint of another program is a mistake in the command, not damage, and is never passed over.

    Raises `DataError` naming both files when neither can be used.
    """
    newest, previous = out / NEWEST, out / PREVIOUS
    try:
        return _load(newest, saved, program_sha256, key, release)
    except _DamageError as damage:
        if not previous.exists():
            raise _damaged(newest, damage) from damage
        try:
            progress = _load(previous, saved, program_sha256, key, release)
        except _DamageError as second:
            raise _both_damaged(newest, damage, previous, second) from second
        log.warning("cannot use `%s`: %s; going back to step %d from `%s`", newest, damage, progress.step, previous)
    promote_previous(out)
    return progress


def read_run_header(out: Path, *, program_sha256: str, saved_bytes: int, key: SecretKey | None = None) -> Header:
    """The header of what `load_run_checkpoint` would load, verified in the same way. Changes nothing.

    Raises `DataError` as that does.
    """
    newest, previous = out / NEWEST, out / PREVIOUS
    try:
        path, header = newest, _verified(newest, key)
    except _DamageError as damage:
        if not previous.exists():
            raise _damaged(newest, damage) from damage
        try:
            path, header = previous, _verified(previous, key)
        except _DamageError as second:
            raise _both_damaged(newest, damage, previous, second) from second
    _check_program(path, header, saved_bytes, program_sha256)
    return header


def promote_previous(out: Path) -> None:
    """Drops the newest checkpoint: the previous one takes its place."""
    disk.rename(out / PREVIOUS, out / NEWEST)
    sync_directory(out)


def remove_run_checkpoints(out: Path) -> None:
    """Clears the way for a new run, so that it can never go back to a checkpoint of an older one."""
    for path in (out / NEWEST, out / PREVIOUS, out / BEST):
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise disk_error(path, error) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, with everything the system has against reading it told as damage."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise _DamageError(f"it cannot be read: {error.strerror or error}") from error
    except SealedFileError as error:
        raise _DamageError(str(error), fix=fix_of(error)) from error


def _load(path: Path, saved: memoryview, program_sha256: str, key: SecretKey | None, release: Release) -> Progress:
    with _opened(path) as file:
        role = _role_of(path)
        header = _verify(reading(file, key, role))
        _check_program(path, header, saved.nbytes, program_sha256)
        try:
            is_same = _fill(reading(file, key, role), header, saved, release)
        except OSError as error:
            raise _changed(path, error.strerror or str(error)) from error
        except SealedFileError as error:
            raise _changed(path, str(error)) from error
        if not is_same:
            raise _changed(path, "a second reading gave other bytes than the first")
    return header.progress


def _verify(file: Readable) -> Header:
    """Reads the content from its start to its end. Raises `_DamageError` unless every byte is as it was written."""
    digest = hashlib.sha256()
    prefix = file.read(_PREFIX_BYTES)
    if not prefix:
        raise _DamageError("it is empty")
    if not prefix.startswith(_MAGIC[: len(prefix)]):
        raise _DamageError("it does not begin like a checkpoint")
    digest.update(prefix)
    text_bytes = int.from_bytes(prefix[len(_MAGIC) :], "little")
    if len(prefix) < _PREFIX_BYTES or text_bytes > _MOST_HEADER_BYTES:
        raise _DamageError("its header is cut off")
    text = file.read(text_bytes)
    digest.update(text)
    if len(text) < text_bytes:
        raise _DamageError(f"it ends after {len(prefix) + len(text)} bytes, within its header")
    payload_bytes = _payload_bytes(text)
    read_bytes = sum(len(chunk) for chunk in _hashed_chunks(file, digest, payload_bytes))
    if read_bytes < payload_bytes:
        raise _DamageError(f"it holds {show_bytes(read_bytes)} of {show_bytes(payload_bytes)}")
    trailer = file.read(_DIGEST_BYTES + 1)
    if len(trailer) != _DIGEST_BYTES:
        raise _DamageError("its check sum is cut off" if len(trailer) < _DIGEST_BYTES else "something follows its end")
    if trailer != digest.digest():
        raise _DamageError("its check sum does not match its content")
    # Only a header that the check sum vouches for is interpreted.
    try:
        return _header_from_json(parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _DamageError(f"its header does not hold what it should: {error}") from error


def _payload_bytes(text: bytes) -> int:
    """The payload's size from a header that nothing vouches for yet."""
    try:
        size = parse_json(text)["payload_bytes"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _DamageError("its header is not readable") from error
    if type(size) is not int or not 0 <= size < 1 << 63:
        raise _DamageError("its header is not readable")
    return size


def _hashed_chunks(file: Readable, digest: _Hash, total_bytes: int) -> Iterator[bytes]:
    left = total_bytes
    while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
        yield chunk


def _fill(file: Readable, header: Header, saved: memoryview, release: Release) -> bool:
    """Reads the verified payload into `saved`; says whether the file still has the content that was verified."""
    digest = hashlib.sha256()
    target = saved.cast("B")
    prefix = file.read(_PREFIX_BYTES)
    digest.update(prefix)
    digest.update(file.read(int.from_bytes(prefix[len(_MAGIC) :], "little")))
    filled = 0
    for chunk in _hashed_chunks(file, digest, header.payload_bytes):
        target[filled : filled + len(chunk)] = chunk
        filled += len(chunk)
        release()
    return filled == header.payload_bytes and file.read(_DIGEST_BYTES) == digest.digest()


def _check_program(path: Path, header: Header, saved_bytes: int, program_sha256: str) -> None:
    if header.program_sha256 != program_sha256 or header.payload_bytes != saved_bytes:
        raise DataError(
            f"`{path}` belongs to another program",
            why=f"it was saved by program {header.program_sha256[:12]} with {show_bytes(header.payload_bytes)} of "
            f"parameters and state; this is program {program_sha256[:12]} with {show_bytes(saved_bytes)}",
            fix="resume with the model, recipe and budget of the first run, or start again without --resume",
        )


def _header_from_json(data: dict[str, Any]) -> Header:
    found = data.get("format")
    if found != FORMAT and found not in _WITH_HISTORY:
        raise _DamageError(f"it has the format `{found}`, and this version of edgetrain reads `{FORMAT}`")
    progress = data["progress"]
    return Header(
        program_sha256=str(data["program_sha256"]),
        payload_bytes=data["payload_bytes"],
        progress=Progress(
            step=_whole(progress, "step"),
            position=(_whole(progress["position"], 0), _whole(progress["position"], 1)),
            steps_per_epoch=_whole(progress, "steps_per_epoch", least=1),
            seed=_whole(progress, "seed"),
            best=record_from_plain(Best, progress["best"]) if progress["best"] is not None else None,
            **(_recent(progress) if found == FORMAT else _recent_of_history(progress)),
        ),
    )


def _recent(progress: dict[str, Any]) -> dict[str, Any]:
    last = progress["validation"]
    return {
        "epoch_loss": _unpacked(progress["epoch_loss"]),
        "validation": record_from_plain(Validation, last) if last is not None else None,
    }


def _recent_of_history(progress: dict[str, Any]) -> dict[str, Any]:
    """What a run that goes on needs of the losses and validations of all its epochs."""
    validations = tuple(record_from_plain(Validation, validation) for validation in progress["validations"])
    in_epoch = progress["step"] - epoch_start(progress["step"], progress["steps_per_epoch"])
    total = ExactSum()
    for loss in _unpacked(progress["losses"])[progress["step"] - in_epoch :]:
        total.add(loss)
    return {
        "epoch_loss": total.parts,
        "validation": validations[-1] if validations else None,
        "earlier": validations,
    }


def epoch_start(step: int, steps_per_epoch: int) -> int:
    """How many steps were done when the epoch of the last step began."""
    return max(0, step - 1) // steps_per_epoch * steps_per_epoch


def _whole(data: Any, key: str | int, *, least: int = 0) -> int:
    """Raises `ValueError` for anything but a number that a run can have."""
    value = data[key]
    if type(value) is not int or not least <= value <= LARGEST_INTEGER:
        raise ValueError(f"`{key}` is `{value}`, expected a whole number from {least} on, of at most 63 bits")
    return value


def _damaged(path: Path, damage: _DamageError) -> DataError:
    return DataError(
        f"the checkpoint `{path}` cannot be used",
        why=str(damage),
        fix=f"{damage.fix}, or start again without --resume",
    )


def _both_damaged(newest: Path, damage: _DamageError, previous: Path, second: _DamageError) -> DataError:
    return DataError(
        f"neither `{newest}` nor `{previous}` can be used",
        why=f"the first: {damage}; the second: {second}",
        fix=f"{second.fix if second.fix == damage.fix else 'restore one of them from a copy'}, or start again "
        "without --resume",
    )


def _changed(path: Path, why: str) -> DeviceError:
    return DeviceError(
        f"`{path}` failed when it was read again, although its check sum was right",
        why=why,
        fix="check the disk, and that no other run writes to the same folder",
    )
