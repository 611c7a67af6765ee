"""The remotes that were pulled from: a small file for each, beside the store that mirrors it.

NAME.json     the address, and how it is to be asked; no secrets, a token is read from its own file each time
NAME.sqlite   what was pulled
NAME.git      a clone, where the remote is a git repository
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from edgetrain_tuner import disk
from edgetrain_tuner.cache.fields import Wrong, choice, parse_json, read_object, text
from edgetrain_tuner.cache.whole_file import replaced_file

log = logging.getLogger(__name__)

_FORMAT = "edgetrain.remote/1"
_MOST_BYTES = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    url: str
    folder: Path
    token_file: str = ""
    require_signature: bool = False

    @property
    def name(self) -> str:
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def store_path(self) -> Path:
        return self.folder / f"{self.name}.sqlite"

    @property
    def clone_path(self) -> Path:
        return self.folder / f"{self.name}.git"

    def remember(self) -> None:
        """Written whole or not at all."""
        disk.make_folders(self.folder)
        data = {
            "format": _FORMAT,
            "url": self.url,
            "token_file": self.token_file,
            "require_signature": self.require_signature,
        }
        with replaced_file(self.folder / f"{self.name}.json", mode=0o600) as stream:
            stream.write((json.dumps(data, indent=1) + "\n").encode())

    def forget(self) -> bool:
        """Removes it and everything that was pulled from it; says whether there was anything."""
        places = sorted(self.folder.glob(f"{self.name}.*"))
        for place in places:
            if place.is_dir():
                disk.remove_tree(place)
            else:
                disk.remove(place)
        return bool(places)


def remembered_teams(folder: Path) -> tuple[Team, ...]:
    """In the order of their addresses. A file that cannot be read is passed over with a warning."""
    teams = [team for path in sorted(folder.glob("*.json")) if (team := _read(path)) is not None]
    return tuple(sorted(teams, key=lambda team: team.url))


def _read(path: Path) -> Team | None:
    mistakes: list[str] = []
    line = text(r"[^\x00-\x1f]{0,4000}", "a line of text")
    readers = {"format": choice(_FORMAT), "url": line, "token_file": line, "require_signature": _flag}
    try:
        with path.open("rb") as stream:
            data = parse_json(stream.read(_MOST_BYTES).decode("utf-8", "replace"))
        fields = read_object(data, readers, where="", mistakes=mistakes)
    except (OSError, Wrong) as error:
        fields, mistakes = None, [str(error)]
    if fields is None:
        log.warning("%s is passed over: %s", path, "; ".join(mistakes))
        return None
    del fields["format"]
    return Team(folder=path.parent, **fields)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value
