"""Several jobs inside one budget: a ledger in a folder, without a daemon.

Each job keeps a claim there: the least it can run with, the most it could use, its weight, and what it holds now. A
claim is a file that its job holds a lock on; when the job ends, however it ends, the system lets go of the lock, and
whoever looks next removes the claim. A job may hold more only when nobody else holds it; so the sum of what is held
never exceeds the whole, also while one job shrinks and another waits to grow.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from edgetrain.errors import PlanInfeasibleError, UsageError
from edgetrain.files.atomic_file import disk_error
from edgetrain.files.texts import parse_json
from edgetrain.run.limits.ladder import Ladder, Rung
from edgetrain.units import parse_bytes, show_bytes, show_bytes_up

_FORMAT = "edgetrain.claim/1"
_LOCK = "ledger.lock"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")  # a file is named by it
_POLL_S = 0.05
_PERIOD_S = 0.2  # how often a running job looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a user asks for: a part of the memory that goes by this name."""

    name: str
    total_bytes: int
    weight: int = 1
    wait: bool = False  # until there is room, instead of an error

    @staticmethod
    def parse(text: str) -> Share:
        """`NAME=SIZE`. Raises `UsageError` for anything else."""
        name, equals, size = text.partition("=")
        if not equals or not _NAME.match(name):
            raise UsageError(
                f"`{text}` is not a share",
                why="a name has up to 100 letters, digits and `_.-`, and begins with a letter or digit",
                fix="write it like `--share desk=2GB`",
            )
        return Share(name=name, total_bytes=parse_bytes(size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One job's line in the ledger. `held_bytes` is 0 until it may begin."""

    folder: str
    process: int
    total_bytes: int
    least_bytes: int
    most_bytes: int
    weight: int
    held_bytes: int = 0


def fair_shares(total_bytes: int, claims: Sequence[Claim]) -> tuple[int, ...]:
    """Each gets its least, and of the rest a part by weight; what one cannot use goes to the others.

    The least of all must fit. The sum never exceeds the whole.
    """
    shares = [claim.least_bytes for claim in claims]
    growing = [i for i, claim in enumerate(claims) if claim.most_bytes > claim.least_bytes]
    while growing:
        left, weights = total_bytes - sum(shares), sum(claims[i].weight for i in growing)
        parts = {i: left * claims[i].weight // weights for i in growing}
        full = [i for i in growing if shares[i] + parts[i] >= claims[i].most_bytes]
        for i in full or growing:
            shares[i] = min(claims[i].most_bytes, shares[i] + parts[i])
        growing = [i for i in growing if i not in full] if full else []
    return tuple(shares)


class Seat:
    """A job's place at the ledger, and the governor's `Limit` that follows from it."""

    cause = "share"
    is_budget = True

    def __init__(self, directory: Path, path: Path, descriptor: int, claim: Claim, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._path = path
        self._descriptor = descriptor
        self._clock = clock
        self._looked_at = -float("inf")
        self._allowance_bytes = 0
        self.claim = claim
        self._write()

    def allowance(self, ladder: Ladder, rung: Rung) -> int | None:
        """The fair share, or what the others leave of it."""
        del ladder, rung
        now = self._clock()
        if now - self._looked_at >= _PERIOD_S:
            self._looked_at = now
            with _ledger(self._directory):
                self._allowance_bytes = self._within_ledger()
        return self._allowance_bytes

    def reserve(self, nbytes: int) -> bool:
        with _ledger(self._directory):
            if nbytes > self._within_ledger():
                return False
            self._hold(nbytes)
        return True

    def settle(self, nbytes: int) -> None:
        with _ledger(self._directory):
            self._hold(nbytes)

    def begin(self) -> int | None:
        """Holds the share and returns it; None while the others have not made enough room for the least."""
        with _ledger(self._directory):
            share = self._within_ledger()
            if share < self.claim.least_bytes:
                return None
            self._hold(share)
        return share

    def others(self) -> tuple[Claim, ...]:
        with _ledger(self._directory):
            return _claims(self._directory, besides=self._path)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _within_ledger(self) -> int:
        others = _claims(self._directory, besides=self._path)
        share = fair_shares(self.claim.total_bytes, (self.claim, *others))[0]
        return min(share, self.claim.total_bytes - sum(claim.held_bytes for claim in others))

    def _hold(self, nbytes: int) -> None:
        if nbytes != self.claim.held_bytes:
            self.claim = replace(self.claim, held_bytes=nbytes)
            self._write()

    def _write(self) -> None:
        """In place, under the ledger's lock: a new file would not be locked. Half a claim dies with its job."""
        data = json.dumps({"format": _FORMAT, **asdict(self.claim)}).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)


@contextlib.contextmanager
def seat(
    shares: Path,
    share: Share,
    *,
    folder: Path,
    least_bytes: int,
    most_bytes: int,
    notify: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Seat, int]]:
    """A place among the jobs of that share, and how much it may use at first: at least `least_bytes`.

    Waits until the others have made room, at the end of their steps. Raises `PlanInfeasibleError`, naming who holds
    what, where the least of all is more than the whole (with `share.wait` it waits for one of them to end);
    `UsageError` when the others know the share by another size.
    """
    directory = shares / share.name
    claim = Claim(
        folder=str(folder.resolve()),
        process=os.getpid(),
        total_bytes=share.total_bytes,
        least_bytes=least_bytes,
        most_bytes=max(least_bytes, most_bytes),
        weight=share.weight,
    )
    place = _admit(directory, claim, share, notify, clock)
    try:
        told = False
        while (granted := place.begin()) is None:
            if not told:
                notify(f"waiting for {_names(place.others())} to make room at the end of a step")
                told = True
            time.sleep(_POLL_S)
        yield place, granted
    finally:
        place.close()


def _admit(
    directory: Path, claim: Claim, share: Share, notify: Callable[[str], None], clock: Callable[[], float]
) -> Seat:
    told = False
    while True:
        with _ledger(directory):
            others = _claims(directory)
            sizes = {other.total_bytes for other in others} - {claim.total_bytes}
            if sizes:
                raise UsageError(
                    f"`{share.name}` is {show_bytes(min(sizes))}, not {show_bytes(claim.total_bytes)}",
                    why=f"{_names(others)} began with that",
                    fix=f"use `--share {share.name}={show_bytes(min(sizes))}`, or another name",
                )
            least = claim.least_bytes + sum(other.least_bytes for other in others)
            if least <= claim.total_bytes:
                return _sit_down(directory, claim, clock)
            if not share.wait or claim.least_bytes > claim.total_bytes:
                raise _no_room(share, claim, others, least)
        if not told:
            notify(f"waiting for room in `{share.name}`: {_held(others)}")
            told = True
        time.sleep(_POLL_S)


def _sit_down(directory: Path, claim: Claim, clock: Callable[[], float]) -> Seat:
    path = directory / f"{uuid.uuid4().hex}.json"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(path, error) from error
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return Seat(directory, path, descriptor, claim, clock)


@contextlib.contextmanager
def _ledger(directory: Path) -> Iterator[None]:
    """Nobody else reads or writes claims meanwhile."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(directory / _LOCK, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_share_in_use(shares: Path) -> bool:
    """Whether a job that lives takes part in any of the shares that meet below the folder."""
    return any(_claims(folder) for folder in sorted(shares.glob("*/")))


def _claims(directory: Path, *, besides: Path | None = None) -> tuple[Claim, ...]:
    """The claims of jobs that live, in the same order for everybody; those of the dead are removed."""
    found = []
    for path in sorted(directory.glob("*.json")):
        if path == besides:
            continue
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # held: its job lives
                data = parse_json(file.read())
                data.pop("format")
                found.append(Claim(**data))
            else:
                path.unlink()
    return tuple(found)


def _names(claims: Sequence[Claim]) -> str:
    return ", ".join(f"`{claim.folder}` (process {claim.process})" for claim in claims)


def _held(claims: Sequence[Claim]) -> str:
    parts = (f"{_names([c])} holds {show_bytes(c.held_bytes)}, {show_bytes(c.least_bytes)} at least" for c in claims)
    return "; ".join(parts)


def _no_room(share: Share, claim: Claim, others: Sequence[Claim], least: int) -> PlanInfeasibleError:
    return PlanInfeasibleError(
        f"no room in `{share.name}`: it is {show_bytes(claim.total_bytes)}, and all its jobs need "
        f"{show_bytes_up(least)} at least",
        why="; ".join(filter(None, (f"this one needs {show_bytes_up(claim.least_bytes)}", _held(others)))),
        fix="wait for one of them to end with --wait, lower train.batch, or give the share more memory",
    )
