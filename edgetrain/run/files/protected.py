"""A run's files that hold data or what was learned from it: with a key they are encrypted, without one plain.

Which files those are is decided by who writes them; `docs/security.md` has the table. Whether a run's files are
encrypted is a fact of the run: a plain file in the place of an encrypted one is refused as well.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from edgetrain.errors import DataError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.encrypted import MAGIC, EncryptedReader, Readable, SealedFileError, Writable, encrypting
from edgetrain.files.regular_file import irregular_kind
from edgetrain.files.secret_key import SecretKey


@contextlib.contextmanager
def protected_file(
    path: Path, key: SecretKey | None, *, role: str = "", keep_old_as: Path | None = None
) -> Iterator[Writable]:
    """`replaced_file`, encrypted where there is a key. `role` is what it is read as; its name, if nothing else."""
    with replaced_file(path, keep_old_as=keep_old_as) as file:
        if key is None:
            yield file
        else:
            with encrypting(file, key, role or path.name) as writer:
                yield writer


def reading(file: BinaryIO, key: SecretKey | None, role: str) -> Readable:
    """The content of an open file from its start on. Raises `SealedFileError` as `EncryptedReader`, now or later."""
    file.seek(0)
    if key is not None:
        return EncryptedReader(file, key, role)
    start = file.read(len(MAGIC))
    file.seek(0)
    if start == MAGIC:
        raise SealedFileError("it is encrypted, and the run's recipe names no key")
    return file


def protected_bytes(path: Path, key: SecretKey | None) -> bytes:
    """What `protected_file` wrote. Raises `OSError`, and `DataError` where it is no file or cannot be decrypted."""
    with opened_regular(path) as file:
        try:
            return reading(file, key, path.name).read()
        except SealedFileError as error:
            raise cannot_decrypt(path, error) from error


def opened_regular(path: Path, *, flags: int = 0) -> BinaryIO:
    """The file, open to be read. Raises `OSError`, and `DataError` for a folder, a pipe or a device in its place."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):  # a pipe would be waited for
        os.close(descriptor)
        raise DataError(
            f"`{path}` is {irregular_kind(path) or 'a folder'}, not a file",
            why="the run did not write it",
            fix="restore the file from a copy, or start the run again",
        )
    return os.fdopen(descriptor, "rb")


def cannot_decrypt(path: Path, error: SealedFileError) -> DataError:
    """What a person reads of it."""
    return DataError(f"`{path}` cannot be decrypted", why=str(error), fix=fix_of(error))


def fix_of(error: SealedFileError) -> str:
    if error.is_wrong_key:
        return "give the key that the run began with: without it nobody can read the run"
    return "restore the file from a copy"
