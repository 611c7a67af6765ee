"""An S3-compatible bucket, path-style: `s3+https://HOST/BUCKET/PREFIX`.

PREFIX/schedules/ID.json      the entry
PREFIX/classes/CLASS/ID       nothing; its name is the class index

A write is conditional on what was read, where the server knows such conditions: of two pushes of one id, neither is
lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote, urlsplit

from edgetrain_tuner.cache.entry import MOST_BYTES, Entry, merge
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.remotes.remote import ID, SUFFIX, Access, Changes, Listed, id_of_name, read_as
from edgetrain_tuner.cache.remotes.s3_client import open_client, origin_of, status_of, told
from edgetrain_tuner.cache.remotes.transport import checked_url

_ATTEMPTS = 8
_MOST_PAGES = 1000
_CONDITION_FAILED = (409, 412)
_NO_CONDITIONS = 501


class S3Remote:
    """`url` is without the `s3+` in front."""

    def __init__(self, url: str, access: Access) -> None:
        parts = urlsplit(checked_url(url, secret=access.session_token))
        bucket, _, prefix = unquote(parts.path).strip("/").partition("/")
        if not bucket:
            raise AddressError(f"`s3+{url}` has no bucket", why="it is written s3+https://HOST/BUCKET/PREFIX")
        self._origin = origin_of(url)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = open_client(self._origin, access)

    def index(self, class_: str) -> tuple[str, ...]:
        names = (key.rpartition("/")[2] for key, _ in self._list(f"classes/{class_}/"))
        return tuple(sorted(name for name in names if ID.fullmatch(name)))

    def get(self, id_: str) -> Entry:
        return read_as(id_, self._read(id_)[0])

    def put(self, entry: Entry) -> None:
        id_ = entry.id
        # The index first: a name without an entry is passed over, an entry without a name would not be found.
        self._put(f"classes/{entry.workload.class_}/{id_}", b"")
        for _ in range(_ATTEMPTS):
            known, condition = self._known(id_)
            joined = merge(known, entry) if known else entry
            if joined == known:
                return
            if self._write(id_, joined, condition):
                return
        raise UnreachableError(
            f"`{self._origin}` did not take {id_}", why=f"others changed it {_ATTEMPTS} times meanwhile"
        )

    def changes(self, since: str) -> Changes:
        """All of them; the tag is the ETag, so that only what changed is fetched."""
        listed = [
            Listed(id=id_, tag=tag)
            for key, tag in self._list("schedules/")
            if (id_ := id_of_name(key.rpartition("/")[2])) is not None
        ]
        return Changes(listed=tuple(sorted(listed, key=lambda one: one.id)))

    def finish(self) -> None:
        """Every object is in its place already."""

    def _read(self, id_: str) -> tuple[bytes, str]:
        """The object and its ETag."""
        with self._told():
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(f"schedules/{id_}{SUFFIX}"))
            with answer["Body"] as stream:
                body: bytes = stream.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise UnreachableError(f"`{self._origin}` answered too much", why=f"more than {MOST_BYTES} bytes")
        return body, str(answer.get("ETag", ""))

    def _known(self, id_: str) -> tuple[Entry | None, Mapping[str, str]]:
        """What is there, and the condition under which it may be replaced."""
        try:
            body, tag = self._read(id_)
        except MissingEntryError:
            return None, {"IfNoneMatch": "*"}
        condition = {"IfMatch": tag} if tag else {}
        try:
            return read_as(id_, body), condition
        except EntryError:  # what is damaged is replaced
            return None, condition

    def _write(self, id_: str, entry: Entry, condition: Mapping[str, str]) -> bool:
        """Whether it was written: not where the condition does not hold any more."""
        from botocore.exceptions import ClientError

        name, body = f"schedules/{id_}{SUFFIX}", entry.text.encode()
        with self._told():
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=body, **condition)
            except ClientError as error:
                if status_of(error) in _CONDITION_FAILED:
                    return False
                if status_of(error) != _NO_CONDITIONS or not condition:
                    raise
                self._put(name, body)
        return True

    def _put(self, name: str, body: bytes) -> None:
        with self._told():
            self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=body)

    def _list(self, below: str) -> Iterator[tuple[str, str]]:
        """Keys and ETags, page after page."""
        query: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._key(below)}
        for _ in range(_MOST_PAGES):
            with self._told():
                page = self._client.list_objects_v2(**query)
            if "IsTruncated" not in page:
                raise UnreachableError(f"`{self._origin}` did not list objects", why="it answers something else")
            for item in page.get("Contents", ()):
                yield str(item["Key"]), str(item.get("ETag", ""))
            token = page.get("NextContinuationToken")
            if not page["IsTruncated"] or not token:
                return
            query["ContinuationToken"] = token
        raise UnreachableError(f"`{self._origin}` lists without end", why=f"{_MOST_PAGES} pages were read")

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _told(self) -> AbstractContextManager[None]:
        return told(f"{self._origin}/{self._bucket}")
