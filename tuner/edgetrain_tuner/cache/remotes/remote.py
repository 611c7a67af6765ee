"""What every remote can do, and what it is given to do it with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from edgetrain_tuner.cache.entry import Entry, read_entry
from edgetrain_tuner.cache.errors import EntryError

ID = re.compile(r"[0-9a-f]{64}")
SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What opens a remote beside its address. The caller reads files and environment; secrets stay out of `repr`."""

    token: str = field(default="", repr=False)  # bearer token, for http(s)
    key_id: str = ""  # for S3, as in AWS_ACCESS_KEY_ID; empty: botocore finds them as AWS's own tools do
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""  # empty: the profile's
    clone_folder: Path | None = None  # where a git remote keeps its clone
    environment: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # of git, which finds its keys there, and of S3 its certificates
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An id at a remote. Its tag changes whenever its entry does; `text` is there when it came for free."""

    id: str
    tag: str
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """One page. `cursor` is where to go on, now if there is `more`, else next time; empty: from the beginning."""

    listed: tuple[Listed, ...]
    cursor: str = ""
    more: bool = False


class Remote(Protocol):
    """All methods raise `AddressError` where address or rights are wrong, `UnreachableError` where nothing answers."""

    def index(self, class_: str) -> tuple[str, ...]:
        """The ids of a class, sorted."""

    def get(self, id_: str) -> Entry:
        """Raises `MissingEntryError`, and `EntryError` for an answer that is not the entry of that id."""

    def put(self, entry: Entry) -> None:
        """Joins the entry with the one that is there; visible to others after `finish`. Raises `EntryError`."""

    def changes(self, since: str) -> Changes:
        """Ids that came or changed since the cursor; a remote that keeps no account lists all."""

    def finish(self) -> None:
        """Completes what was put."""


def read_as(id_: str, words: str | bytes) -> Entry:
    """The entry of that id. Raises `EntryError` for anything else: a remote is not believed."""
    entry = read_entry(words)
    if entry.id != id_:
        raise EntryError("this is another entry than was asked for", mistakes=(f"asked for {id_}, got {entry.id}",))
    return entry


def id_of_name(name: str) -> str | None:
    """The id in a file's name, `ID.json`; none for other files, which may lie there too."""
    stem = name.removesuffix(SUFFIX)
    return stem if name.endswith(SUFFIX) and ID.fullmatch(stem) else None
