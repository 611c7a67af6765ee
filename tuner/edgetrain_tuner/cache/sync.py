"""Between a store and a remote: `pull` takes over what is new there, `push` gives what is new here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edgetrain_tuner.cache.entry import Entry
from edgetrain_tuner.cache.errors import CacheError, EntryError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.remotes.remote import Listed, Remote, read_as
from edgetrain_tuner.cache.store import Change, Store
from edgetrain_tuner.cache.trust import Trust

ReportCount = Callable[[int, int], None]  # done, of

MOST_ENTRIES = 1_000_000  # of a remote: 4 GB at most
_PAGE = 500
_MOST_PAGES = 2 * MOST_ENTRIES // _PAGE
_MOST_SECONDS = 900.0  # of a whole pull: what came by then stays, and the next one goes on
_SAVED_EVERY = 64  # entries that a broken connection can cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What went over: entries that were new or changed, their kernel classes, and what was refused and why."""

    entries: int
    classes: int
    refused: tuple[Refused, ...] = ()


def pull(remote: Remote, store: Store, *, trust: Trust, progress: ReportCount = lambda *_: None) -> Transfer:
    """Takes everything over that changed since the last pull into this store, which mirrors this one remote.

    What is refused is asked for again next time: somebody may have signed or repaired it. Raises `CacheError` where the
    remote fails; what came before that stays.
    """
    begun = cursor = store.note("cursor")
    classes: set[str] = set()
    refused: list[Refused] = []
    count = total = 0
    seen = store.seen()
    deadline = time.monotonic() + _MOST_SECONDS
    for _ in range(_MOST_PAGES):
        if time.monotonic() > deadline:
            raise UnreachableError("the pull took too long", why=f"over {_MOST_SECONDS:g} s; what came is kept")
        page = remote.changes(cursor)
        if page.more and not page.listed:
            raise UnreachableError("the remote answers in circles", why="it says there is more, and lists nothing")
        fresh = [listed for listed in page.listed if seen.get(listed.id) != listed.tag]
        total += len(fresh)
        if total > MOST_ENTRIES:
            raise CacheError("the remote has too many entries", why=f"more than {MOST_ENTRIES}")
        for start in range(0, len(fresh), _SAVED_EVERY):
            part = fresh[start : start + _SAVED_EVERY]
            good = list(_fetched(remote, part, trust, refused))
            store.put_all(entry for _, entry in good)
            fetched = {listed.id: listed.tag for listed, _ in good}
            store.set_seen(list(fetched.items()))
            seen |= fetched
            classes |= {entry.workload.class_ for _, entry in good}
            count += len(good)
            progress(count + len(refused), total)
        cursor = page.cursor
        if not page.more:
            break
    else:
        raise UnreachableError("the remote answers in circles", why=f"it gave over {_MOST_PAGES} pages")
    store.set_note("cursor", begun if refused else cursor)
    return Transfer(entries=count, classes=len(classes), refused=tuple(refused))


def push(
    store: Store,
    remote: Remote,
    *,
    name: str,
    everything: bool = False,
    prepare: Callable[[Entry], Entry] = lambda entry: entry,
    progress: ReportCount = lambda *_: None,
) -> Transfer:
    """Gives what changed here since the last whole push under this name; `everything` forgets that there was one.

    `prepare` is where an entry is signed. Raises `CacheError` where the remote fails; pushing again is harmless.
    """
    note = f"pushed {name}"
    last = 0 if everything else int(store.note(note) or 0)
    numbers = [change.number for change in _all_changes(store, last)]
    classes: set[str] = set()
    refused: list[Refused] = []
    count = 0
    for change in _all_changes(store, last):
        entry = store.get(change.id)
        if entry is not None:
            try:
                remote.put(prepare(entry))
            except EntryError as error:
                refused.append(Refused(id=entry.id, why=error.why or error.what))
            else:
                count += 1
                classes.add(entry.workload.class_)
        progress(count + len(refused), len(numbers))
    remote.finish()
    if numbers and not refused:
        store.set_note(note, str(numbers[-1]))
    return Transfer(entries=count, classes=len(classes), refused=tuple(refused))


def _fetched(
    remote: Remote, part: list[Listed], trust: Trust, refused: list[Refused]
) -> Iterator[tuple[Listed, Entry]]:
    for listed in part:
        try:
            entry = remote.get(listed.id) if listed.text is None else read_as(listed.id, listed.text)
        except MissingEntryError:
            continue  # removed between the list and now
        except EntryError as error:
            refused.append(Refused(id=listed.id, why=error.why or error.what))
            continue
        objection = trust.objection(entry)
        if objection:
            refused.append(Refused(id=listed.id, why=objection))
        else:
            yield listed, entry


def _all_changes(store: Store, since: int) -> Iterator[Change]:
    while page := store.changes(since, most=_PAGE):
        yield from page
        since = page[-1].number
