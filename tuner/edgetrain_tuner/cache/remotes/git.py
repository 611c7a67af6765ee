"""A git repository: one file for each entry, `ab/ID.json`, on the branch that its HEAD names.

Two pushes at once do not conflict: whoever comes second joins its entries with what the first pushed, and pushes again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from edgetrain_tuner.cache.entry import MOST_BYTES, Entry, merge
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.remotes.git_clone import Clone
from edgetrain_tuner.cache.remotes.remote import SUFFIX, Access, Changes, Listed, id_of_name, read_as

_ATTEMPTS = 10


class GitRemote:
    """`url` is anything git takes, without the `git+` in front."""

    def __init__(self, url: str, access: Access) -> None:
        if access.clone_folder is None:
            raise AddressError(f"`{url}` needs a place for its clone")
        self._clone = Clone(url, access.clone_folder, environment=access.environment, timeout_s=access.timeout_s)
        self._put: dict[str, Entry] = {}

    def index(self, class_: str) -> tuple[str, ...]:
        found = []
        for listed in self.changes("").listed:
            with contextlib.suppress(EntryError):
                if read_as(listed.id, listed.text or "").workload.class_ == class_:
                    found.append(listed.id)
        return tuple(found)

    def get(self, id_: str) -> Entry:
        self._clone.fetch()
        blob = self._blobs().get(id_)
        if blob is None:
            raise MissingEntryError(f"`{self._clone.url}` has no entry {id_}")
        content = self._clone.contents([blob], most_bytes=MOST_BYTES).get(blob)
        if content is None:
            raise EntryError("this is no schedule entry", mistakes=(f"it is longer than {MOST_BYTES} bytes",))
        return read_as(id_, content)

    def put(self, entry: Entry) -> None:
        known = self._put.get(entry.id)
        self._put[entry.id] = merge(known, entry) if known else entry

    def changes(self, since: str) -> Changes:
        """All of them; the tag is the hash of the content."""
        self._clone.fetch()
        blobs = self._blobs()
        contents = self._clone.contents(list(blobs.values()), most_bytes=MOST_BYTES)
        texts = {blob: content.decode("utf-8", "replace") for blob, content in contents.items()}
        return Changes(listed=tuple(Listed(id=id_, tag=blob, text=texts.get(blob)) for id_, blob in blobs.items()))

    def finish(self) -> None:
        """Commits and pushes what was put. Raises `UnreachableError` when others are always quicker."""
        for _ in range(_ATTEMPTS):
            if not self._put:
                return
            self._clone.fetch()
            fresh = self._joined()
            message = f"{len(fresh)} schedules\n"
            if not fresh or self._clone.push(fresh, message=message):
                self._put.clear()
                return
        raise UnreachableError(
            f"`{self._clone.url}` did not take the push", why=f"others pushed first, {_ATTEMPTS} times in a row"
        )

    def _blobs(self) -> Mapping[str, str]:
        """The hash of each id's content; other files in the repository are nobody's business here."""
        files = self._clone.files().items()
        found = {id_: blob for path, blob in files if (id_ := id_of_name(path[3:])) and path == _path(id_)}
        return dict(sorted(found.items()))

    def _joined(self) -> Mapping[str, bytes]:
        """The files that have to change."""
        blobs = {id_: blob for id_, blob in self._blobs().items() if id_ in self._put}
        contents = self._clone.contents(list(blobs.values()), most_bytes=MOST_BYTES)
        files = {}
        for id_, entry in sorted(self._put.items()):
            joined = entry
            with contextlib.suppress(EntryError):  # what is missing or damaged is replaced
                joined = merge(read_as(id_, contents.get(blobs.get(id_, ""), b"")), entry)
            words = joined.text.encode()
            if contents.get(blobs.get(id_, "")) != words:
                files[_path(id_)] = words
        return files


def _path(id_: str) -> str:
    return f"{id_[:2]}/{id_}{SUFFIX}"
