"""An address, and the remote behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edgetrain_tuner.cache.errors import AddressError
from edgetrain_tuner.cache.remotes.folder import FolderRemote
from edgetrain_tuner.cache.remotes.git import GitRemote
from edgetrain_tuner.cache.remotes.http import HttpRemote
from edgetrain_tuner.cache.remotes.remote import Access, Remote
from edgetrain_tuner.cache.remotes.s3 import S3Remote

_SCHEME = re.compile(r"([a-z0-9+]+)://")
_SHELL_GIT = re.compile(r"\w[\w.-]*@\w[\w.-]*:[\w./~-]+")  # git@host:team/schedules.git
_MOST_LETTERS = 1000  # with a folder before it and escapes it stays a line that `teams` reads back


def normal_address(words: str) -> str:
    """The one spelling under which a remote is remembered: folders become absolute. Raises `AddressError`."""
    if len(words) > _MOST_LETTERS:
        raise AddressError("this is no address", why=f"it has {len(words)} characters, and at most {_MOST_LETTERS} do")
    if _SHELL_GIT.fullmatch(words):
        return words
    match = _SCHEME.match(words)
    if match is None:
        if not words or words.startswith("-") or not words.isprintable():
            raise AddressError(f"`{words}` is no address", why="it is neither a folder nor one of " + ", ".join(_KINDS))
        return Path(words).expanduser().resolve().as_uri()
    if match[1] not in _KINDS:
        raise AddressError(f"`{words}` is no address", why=f"`{match[1]}` is none of {', '.join(_KINDS)}")
    if not words.isprintable():
        raise AddressError("this is no address", why="it has characters that no address has")
    try:
        has_password = urlsplit(words).password is not None
    except ValueError:  # a bracket that begins a host and never ends; what is before it may be a password
        raise AddressError("this is no address", why="its host cannot be read") from None
    if has_password:
        raise AddressError("the address holds a password", why="addresses are kept and shown")
    return words.rstrip("/")


def open_remote(address: str, access: Access) -> Remote:
    """The remote at an address that `normal_address` gave. Nothing is asked yet. Raises `AddressError`."""
    if _SHELL_GIT.fullmatch(address):
        return GitRemote(address, access)
    match = _SCHEME.match(address)
    if match is None or match[1] not in _KINDS:
        raise AddressError(f"`{address}` is no address")
    return _KINDS[match[1]](address, access)


def _folder(address: str, _: Access) -> Remote:
    return FolderRemote(Path(unquote(urlsplit(address).path)))


def _s3(address: str, access: Access) -> Remote:
    return S3Remote(address.removeprefix("s3+"), access)


def _git(address: str, access: Access) -> Remote:
    return GitRemote(address.removeprefix("git+"), access)


_KINDS: Mapping[str, Callable[[str, Access], Remote]] = {
    "file": _folder,
    "http": HttpRemote,
    "https": HttpRemote,
    "s3+http": _s3,
    "s3+https": _s3,
    "git+file": _git,
    "git+http": _git,
    "git+https": _git,
    "git+ssh": _git,
    "ssh": _git,
}
