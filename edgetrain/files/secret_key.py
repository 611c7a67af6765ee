"""The key that a run's files are encrypted with, read from where a reference says: never from the recipe itself.

    env:NAME               the environment variable NAME
    file:PATH              a file that its owner alone may read
    keyring:SERVICE/NAME   the system's keyring, through the package `keyring`

Each holds 32 bytes as 64 hexadecimal digits or as base64. A passphrase is refused: who has the disk can guess it.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shlex
import stat
from pathlib import Path

from edgetrain.errors import UsageError
from edgetrain.files.texts import read_regular
from edgetrain.locate import environment_variable, key_override

KEY_BYTES = 32
KINDS = ("env", "file", "keyring")
MAKE_KEY = 'python -c "import secrets; print(secrets.token_hex(32))"'

_HEX = re.compile(r"[0-9a-fA-F]{64}")
_MOST_FILE_BYTES = 4096


class SecretKey:
    """32 bytes that show up in no message: neither as text nor in a traceback's values."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        """Raises `ValueError` for another length."""
        if len(content) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._content = content

    def __repr__(self) -> str:
        return "SecretKey(…)"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a key is not written anywhere")

    def content(self) -> bytes:
        """For the cipher alone."""
        return self._content


def is_reference(text: str) -> bool:
    """Whether the text says where a key is."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in KINDS or not rest:
        return False
    return kind != "keyring" or all(part for part in rest.partition("/"))


def read_key(reference: str) -> SecretKey | None:
    """The key that the reference names; None for an empty one. `EDGETRAIN_SECURITY_KEY` names another place for it.

    Raises `UsageError` where there is no key, or what is there is none.
    """
    if not reference:
        return None
    reference = key_override() or reference
    if not is_reference(reference):
        # Not shown: whoever puts the key itself here must not find it in a log.
        raise UsageError(
            "the key's reference is neither `env:NAME`, `file:PATH` nor `keyring:SERVICE/NAME`",
            why="a recipe says where the key is, and never holds the key",
            fix="keep the key in a file that you alone may read, and set security.key to its path after `file:`",
        )
    kind, _, place = reference.partition(":")
    text = {"env": _from_environment, "file": _from_file, "keyring": _from_keyring}[kind](place)
    return _key_of(text, reference)


def _key_of(text: str, reference: str) -> SecretKey:
    text = text.strip()
    content = bytes.fromhex(text) if _HEX.fullmatch(text) else _from_base64(text)
    if len(content) != KEY_BYTES:
        raise UsageError(
            f"what `{reference}` holds is not a key",
            why=f"a key is {KEY_BYTES} random bytes, as 64 hexadecimal digits or as base64; a password is none",
            fix=f"make one with `{MAKE_KEY}`",
        )
    return SecretKey(content)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _from_environment(name: str) -> str:
    text = environment_variable(name)
    if not text:
        raise UsageError(
            f"the environment variable `{name}` with the key is not set",
            why="`security.key` of the run says that the key is there",
            fix=f"set `{name}` to the key of the run, or to a new one for a new run: `{MAKE_KEY}`",
        )
    return text


def _from_file(place: str) -> str:
    path = Path(place).expanduser()
    try:
        content = read_regular(path, most_bytes=_MOST_FILE_BYTES)
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"the key file `{path}` cannot be read",
            why=f"{why}; a link is not followed" if path.is_symlink() else why,
            fix=f"put the key of the run there, or a new one for a new run: `{MAKE_KEY}`",
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"the key file `{path}` can be used by others",
            why=f"its mode is {stat.S_IMODE(mode):04o}, and whoever reads it can read the run",
            fix=f"run `chmod 600 {shlex.quote(os.fspath(path))}`",
        )
    return content.decode("ascii", errors="replace")


def _from_keyring(place: str) -> str:
    service, _, name = place.partition("/")
    try:
        import keyring
    except ImportError as error:
        raise UsageError(
            "the key is in the system's keyring, which needs the package `keyring`",
            fix="`pip install keyring`, or keep the key in a file and name that: `file:PATH`",
        ) from error
    try:
        text = keyring.get_password(service, name)
    except Exception as error:  # every backend has errors of its own
        raise UsageError(
            f"the keyring does not give `{name}` of `{service}`",
            why=f"{type(error).__name__}: {error}",
            fix="unlock it, or keep the key in a file and name that: `file:PATH`",
        ) from error
    if not text:
        raise UsageError(
            f"the keyring holds no `{name}` of `{service}`",
            why="`security.key` of the run says that the key is there",
            fix=f"make a key with `{MAKE_KEY}`, and keep it with "
            f"`keyring set {shlex.quote(service)} {shlex.quote(name)}`",
        )
    return str(text)
