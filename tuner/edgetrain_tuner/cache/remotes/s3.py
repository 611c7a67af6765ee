"""An S3-compatible bucket, path-style: `s3+https://HOST/BUCKET/PREFIX`.

PREFIX/schedules/ID.json      the entry
PREFIX/classes/CLASS/ID       nothing; its name is the class index

A write is conditional on what was read, where the server knows such conditions: of two pushes of one id, neither is
lost.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from edgetrain_tuner.cache.entry import MOST_BYTES, Entry, merge
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.remotes.remote import ID, SUFFIX, Access, Changes, Listed, id_of_name, read_as
from edgetrain_tuner.cache.remotes.sigv4 import Credentials, quoted_path, quoted_query, signed_headers
from edgetrain_tuner.cache.remotes.transport import Answer, ask, checked_url

_ATTEMPTS = 8
_MOST_PAGES = 1000
_CONDITION_FAILED = (409, 412)
_NO_CONDITIONS = 501


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class S3Remote:
    """`url` is without the `s3+` in front. `now` is a parameter because a signature is made of it."""

    def __init__(self, url: str, access: Access, *, now: Callable[[], datetime.datetime] = _utc_now) -> None:
        if not access.key_id or not access.secret_key:
            raise AddressError(
                f"`s3+{url}` needs credentials", why="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set"
            )
        parts = urlsplit(checked_url(url, secret=access.session_token))
        bucket, _, prefix = unquote(parts.path).strip("/").partition("/")
        if not bucket:
            raise AddressError(f"`s3+{url}` has no bucket", why="it is written s3+https://HOST/BUCKET/PREFIX")
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._host = parts.netloc
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._access = access
        self._now = now

    def index(self, class_: str) -> tuple[str, ...]:
        names = (key.rpartition("/")[2] for key, _ in self._list(f"classes/{class_}/"))
        return tuple(sorted(name for name in names if ID.fullmatch(name)))

    def get(self, id_: str) -> Entry:
        return read_as(id_, self._read(id_).body)

    def put(self, entry: Entry) -> None:
        id_ = entry.id
        # The index first: a name without an entry is passed over, an entry without a name would not be found.
        self._ask("PUT", f"classes/{entry.workload.class_}/{id_}")
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

    def _read(self, id_: str) -> Answer:
        return self._ask("GET", f"schedules/{id_}{SUFFIX}", most_bytes=MOST_BYTES)

    def _known(self, id_: str) -> tuple[Entry | None, Mapping[str, str]]:
        """What is there, and the condition under which it may be replaced."""
        try:
            answer = self._read(id_)
        except MissingEntryError:
            return None, {"If-None-Match": "*"}
        tag = answer.headers.get("etag", "")
        condition = {"If-Match": tag} if tag else {}
        try:
            return read_as(id_, answer.body), condition
        except EntryError:  # what is damaged is replaced
            return None, condition

    def _write(self, id_: str, entry: Entry, condition: Mapping[str, str]) -> bool:
        name = f"schedules/{id_}{SUFFIX}"
        allowed = (200, 201, 204, *_CONDITION_FAILED, _NO_CONDITIONS)
        answer = self._ask("PUT", name, body=entry.text.encode(), headers=condition, allowed=allowed)
        if answer.status == _NO_CONDITIONS and condition:
            self._ask("PUT", name, body=entry.text.encode())
            return True
        return answer.status not in _CONDITION_FAILED

    def _list(self, below: str) -> Iterator[tuple[str, str]]:
        """Keys and ETags, page after page."""
        query = {"list-type": "2", "prefix": self._prefix + below}
        for _ in range(_MOST_PAGES):
            root = _parsed(self._ask("GET", "", query=query).body, self._origin)
            for item in root.iterfind("{*}Contents"):
                yield item.findtext("{*}Key", ""), item.findtext("{*}ETag", "")
            token = root.findtext("{*}NextContinuationToken", "")
            if root.findtext("{*}IsTruncated", "") != "true" or not token:
                return
            query["continuation-token"] = token
        raise UnreachableError(f"`{self._origin}` lists without end", why=f"{_MOST_PAGES} pages were read")

    def _ask(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        allowed: tuple[int, ...] = (200, 201, 204),
        most_bytes: int = 8 << 20,
    ) -> Answer:
        path = f"/{self._bucket}/{self._prefix}{name}" if name else f"/{self._bucket}"
        access = self._access
        signed = signed_headers(
            Credentials(
                key_id=access.key_id,
                secret_key=access.secret_key,
                session_token=access.session_token,
                region=access.region,
            ),
            method=method,
            host=self._host,
            path=path,
            query=query or {},
            headers=headers or {},
            body=body,
            now=self._now(),
        )
        url = self._origin + quoted_path(path) + (f"?{quoted_query(query)}" if query else "")
        data = body if method == "PUT" else None
        answer = ask(method, url, headers=signed, body=data, timeout_s=access.timeout_s, most_bytes=most_bytes)
        if answer.status not in allowed:
            raise self._error(answer, path)
        return answer

    def _error(self, answer: Answer, path: str) -> Exception:
        code = _code(answer.body)
        match answer.status:
            case 404 if code == "NoSuchBucket":
                return AddressError(f"there is no bucket `{self._bucket}` at `{self._origin}`", why=code)
            case 404:
                return MissingEntryError(f"`{self._origin}` has no `{path}`")
            case 400 | 401 | 403:
                return AddressError(f"`{self._origin}` refused the request", why=code or f"status {answer.status}")
        return UnreachableError(f"`{self._origin}` answered with status {answer.status}", why=code)


def _parsed(body: bytes, origin: str) -> ElementTree.Element:
    if b"<!" in body:  # no list of objects declares a document type or entities
        raise UnreachableError(f"`{origin}` did not list objects", why="its answer declares a document type")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise UnreachableError(f"`{origin}` did not list objects", why=str(error)) from None


def _code(body: bytes) -> str:
    """The name S3 gives to an error: `SignatureDoesNotMatch`, `NoSuchBucket`."""
    match = re.search(rb"<Code>([A-Za-z]{1,60})</Code>", body)
    return match[1].decode() if match else ""
