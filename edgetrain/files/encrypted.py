"""Files that only who has the key can read or change unnoticed: AES-256-GCM in chunks, read and written as a stream.

    header   magic (8 bytes) | version (1) | three zeros | salt (32) | key check (16)
    chunk    65536 bytes of content, encrypted | tag (16); the last chunk is shorter, or even empty

Each time a file is written it gets a new random salt, and HKDF-SHA256 makes a key of its own from salt, master key and
the file's role. So a nonce, the number of the chunk, is never used twice with one key, however often a run goes on. The
header, the chunk's number and whether it is the last are authenticated with each chunk: a file that was cut, put
together anew, or given the place of another role is noticed. The key check tells a wrong key from a damaged file.

The cipher is that of the package `cryptography`; there is none of our own.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from edgetrain.errors import UsageError
from edgetrain.files.secret_key import SecretKey

MAGIC = b"EDGECRY\n"
CHUNK_BYTES = 1 << 16  # small: two of them are in memory while a checkpoint is written

_VERSION = 1
_PREFIX = MAGIC + bytes([_VERSION, 0, 0, 0])
_SALT_BYTES = 32
_CHECK_BYTES = 16
_TAG_BYTES = 16
_KEY_BYTES = 32
_HEADER_BYTES = len(_PREFIX) + _SALT_BYTES + _CHECK_BYTES


class SealedFileError(Exception):
    """The file cannot be decrypted; the text says why. `is_wrong_key`: with another key it might be."""

    def __init__(self, text: str, *, is_wrong_key: bool = False) -> None:
        super().__init__(text)
        self.is_wrong_key = is_wrong_key


class Writable(Protocol):
    def write(self, data: bytes | bytearray | memoryview, /) -> Any: ...


class Readable(Protocol):
    def read(self, count: int = -1, /) -> bytes: ...


def require_cipher() -> None:
    """Raises `UsageError` where the package is missing that encrypts."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "the run's files are encrypted, and the package that does so is missing",
            why=str(error),
            fix="`pip install 'edgetrain[encrypt]'`",
        ) from error


def is_encrypted(path: Path) -> bool:
    """Whether the file begins like an encrypted one. Raises `OSError`."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@contextlib.contextmanager
def encrypting(file: BinaryIO, key: SecretKey, role: str) -> Iterator[Writable]:
    """What is written comes encrypted to `file`. Only a block that ends without error leaves a whole file."""
    writer = _Writer(file, key, role)
    yield writer
    writer.finish()


class _Cipher:
    """One file's. Encrypts each number of a chunk once."""

    def __init__(self, key: SecretKey, salt: bytes, role: str, header: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(_derived(key, salt, f"content of {role}", _KEY_BYTES))
        self._header = header

    def seal(self, index: int, content: bytes | bytearray | memoryview, *, is_last: bool) -> bytes:
        sealed: bytes = self._cipher.encrypt(_nonce(index), content, self._bound(is_last))
        return sealed

    def open(self, index: int, sealed: bytes, *, is_last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            content: bytes = self._cipher.decrypt(_nonce(index), sealed, self._bound(is_last))
        except InvalidTag as error:
            raise SealedFileError(
                f"its part {index + 1} is not as it was written: it was damaged, cut, or is another file's"
            ) from error
        return content

    def _bound(self, is_last: bool) -> bytes:
        return self._header + bytes([is_last])


def _nonce(index: int) -> bytes:
    return index.to_bytes(12, "big")


def _derived(key: SecretKey, salt: bytes, purpose: str, nbytes: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derivation = HKDF(algorithm=SHA256(), length=nbytes, salt=salt, info=f"edgetrain {_VERSION}: {purpose}".encode())
    derived: bytes = derivation.derive(key.content())
    return derived


def _new_cipher(key: SecretKey, role: str) -> tuple[bytes, _Cipher]:
    salt = secrets.token_bytes(_SALT_BYTES)
    header = _PREFIX + salt + _derived(key, salt, "check", _CHECK_BYTES)
    return header, _Cipher(key, salt, role, header)


class _Writer:
    def __init__(self, file: BinaryIO, key: SecretKey, role: str) -> None:
        header, self._cipher = _new_cipher(key, role)
        self._file = file
        self._buffer = bytearray(CHUNK_BYTES)
        self._filled = 0
        self._index = 0
        file.write(header)

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        source = memoryview(data).cast("B")
        done = 0
        while done < len(source):
            if self._filled == CHUNK_BYTES:  # only now is it sure that it is not the last
                self._write_chunk(is_last=False)
            count = min(CHUNK_BYTES - self._filled, len(source) - done)
            self._buffer[self._filled : self._filled + count] = source[done : done + count]
            self._filled += count
            done += count
        return done

    def finish(self) -> None:
        self._write_chunk(is_last=True)

    def _write_chunk(self, *, is_last: bool) -> None:
        self._file.write(self._cipher.seal(self._index, memoryview(self._buffer)[: self._filled], is_last=is_last))
        self._index += 1
        self._filled = 0


class EncryptedReader:
    """The content of an encrypted file, from its start on. Everything that `read` gives was authenticated.

    Raises `SealedFileError` for another key, and at the first byte that was changed; a file that was cut, or that
    something follows, is noticed with its last chunk.
    """

    def __init__(self, file: BinaryIO, key: SecretKey, role: str) -> None:
        header = file.read(_HEADER_BYTES)
        if not header.startswith(MAGIC):
            raise SealedFileError("it is not encrypted, and the run's files are: somebody else wrote it")
        if len(header) < _HEADER_BYTES:
            raise SealedFileError("it is cut off within its first bytes")
        if not header.startswith(_PREFIX):
            raise SealedFileError(f"its encryption is of version {header[len(MAGIC)]}, and this reads {_VERSION}")
        salt, check = header[len(_PREFIX) : -_CHECK_BYTES], header[-_CHECK_BYTES:]
        if not hmac.compare_digest(check, _derived(key, salt, "check", _CHECK_BYTES)):
            raise SealedFileError(
                "it was encrypted with another key, or its first bytes are damaged", is_wrong_key=True
            )
        self._cipher = _Cipher(key, salt, role, header)
        self._file = file
        self._next = file.read(CHUNK_BYTES + _TAG_BYTES)
        self._index = 0
        self._content = b""
        self._given = 0
        self._is_at_end = False

    def read(self, count: int = -1, /) -> bytes:
        """So many bytes; fewer only at the end; without a number all that is left."""
        parts: list[bytes] = []
        left = count
        while left != 0:
            if self._given == len(self._content) and not self._open_chunk():
                break
            end = len(self._content) if left < 0 else min(len(self._content), self._given + left)
            parts.append(self._content[self._given : end])
            left -= end - self._given if left > 0 else 0
            self._given = end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _open_chunk(self) -> bool:
        """Whether there was another one."""
        if self._is_at_end:
            return False
        sealed, self._next = self._next, self._file.read(CHUNK_BYTES + _TAG_BYTES)
        if len(sealed) < _TAG_BYTES:
            raise SealedFileError("it is cut off")
        self._is_at_end = not self._next
        self._content = self._cipher.open(self._index, sealed, is_last=self._is_at_end)
        self._given = 0
        self._index += 1
        return True
