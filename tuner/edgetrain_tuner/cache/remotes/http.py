"""An `edgetrain cache serve`, or anything that answers the same four requests (see `serve.py`)."""

from __future__ import annotations

import json
from typing import Any

from edgetrain_tuner.cache.entry import MOST_BYTES, Entry
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.fields import Wrong, integer, list_of, parse_json, read_object, text
from edgetrain_tuner.cache.remotes.remote import Access, Changes, Listed, read_as
from edgetrain_tuner.cache.remotes.transport import Answer, ask, checked_url

PREFIX = "/v1"
MOST_PAGE = 500  # entries in an answer

_ID = text(r"[0-9a-f]{64}", "an id")
_CURSOR = text(r"[0-9a-zA-Z.-]{0,100}", "a cursor")


class HttpRemote:
    def __init__(self, url: str, access: Access) -> None:
        self._url = checked_url(url, secret=access.token)
        self._access = access

    def index(self, class_: str) -> tuple[str, ...]:
        data = self._json("GET", f"/classes/{class_}", {"ids": list_of(_ID, most=100_000)})
        return tuple(sorted(data["ids"]))

    def get(self, id_: str) -> Entry:
        return read_as(id_, self._ask("GET", f"/schedules/{id_}", most_bytes=MOST_BYTES).body)

    def put(self, entry: Entry) -> None:
        self._ask("PUT", f"/schedules/{entry.id}", body=entry.text.encode())

    def changes(self, since: str) -> Changes:
        readers = {"changes": list_of(_listed, most=MOST_PAGE), "cursor": _CURSOR, "more": integer(0, 1)}
        data = self._json("GET", f"/changes?since={_CURSOR(since)}", readers)
        if data["more"] and data["cursor"] == since:
            raise UnreachableError(
                f"`{self._url}` answers in circles", why="it says there is more, and goes no further"
            )
        return Changes(listed=data["changes"], cursor=data["cursor"], more=bool(data["more"]))

    def finish(self) -> None:
        """Every entry is in its place already."""

    def _json(self, method: str, path: str, readers: Any) -> dict[str, Any]:
        mistakes: list[str] = []
        try:
            data = parse_json(self._ask(method, path).body.decode("utf-8", "replace"))
            fields = read_object(data, readers, where="", mistakes=mistakes)
        except Wrong as wrong:
            fields, mistakes = None, [str(wrong)]
        except MissingEntryError:
            raise AddressError(
                f"there is no schedule cache at `{self._url}`", why="it answers, but not to that"
            ) from None
        if fields is None:
            raise UnreachableError(f"`{self._url}` is no schedule cache", why="; ".join(mistakes))
        return fields

    def _ask(self, method: str, path: str, *, body: bytes | None = None, most_bytes: int = 8 << 20) -> Answer:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        url = self._url + PREFIX + path
        answer = ask(method, url, headers=headers, body=body, timeout_s=self._access.timeout_s, most_bytes=most_bytes)
        if answer.status not in (200, 201):
            raise self._error(answer)
        return answer

    def _error(self, answer: Answer) -> Exception:
        why = _told(answer)
        match answer.status:
            case 401:
                had = "the token is not the one it wants" if self._access.token else "it wants a token, and got none"
                return AddressError(f"`{self._url}` refuses the token", why=had)
            case 403:
                return AddressError(f"`{self._url}` does not allow it", why=why or "it is read-only for you")
            case 404:
                return MissingEntryError(f"`{self._url}` has no such entry", why=why)
            case 400 | 413 | 422:
                return EntryError(f"`{self._url}` refused the entry", mistakes=(why or f"status {answer.status}",))
            case 301 | 302 | 303 | 307 | 308:
                place = answer.headers.get("location", "elsewhere")[:200]
                return AddressError(f"`{self._url}` has moved", why=f"it redirects to `{_plain(place)}`")
        return UnreachableError(f"`{self._url}` answered with status {answer.status}", why=why)


def _listed(value: object) -> Listed:
    mistakes: list[str] = []
    readers = {"id": _ID, "tag": _CURSOR, "text": text(r"[ -~]{0,%d}" % MOST_BYTES, "an entry's text")}  # noqa: UP031
    fields = read_object(value, readers, where="", mistakes=mistakes)
    if fields is None:
        raise Wrong("; ".join(mistakes))
    return Listed(**fields)


def _told(answer: Answer) -> str:
    """The server's own words, if it is one of ours."""
    try:
        data = json.loads(answer.body)
        return _plain(str(data["why"])[:500])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _plain(words: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in words)
