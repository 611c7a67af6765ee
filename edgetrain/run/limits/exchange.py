"""How a run and the commands beside it exchange messages: three small files in the run folder.

    run.lock       held by the run from its first look at the folder on: the system lets go of it however the run ends
    live.json      what the run says of itself: its plan, its budget, and which request it answered last
    request.json   what it is asked, read between two steps

Both JSON files are replaced in one piece, so that neither side ever reads half a message. No daemon, no port, and
nothing to clean up: a request is known by its id, and what an earlier run left behind is never answered.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import DataError, DeviceError, UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.texts import parse_json, read_regular
from edgetrain.run.files.claim import LOCK, claimed
from edgetrain.run.files.run_folder import LIVE, REQUEST
from edgetrain.run.limits.ladder import BROKEN, Rung
from edgetrain_tuner import disk

_MOST_BYTES = 64 << 10  # of a request or an answer

_FORMAT = "edgetrain.live/1"
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """A run at the end of step `step`."""

    step: int
    steps: int
    budget_bytes: int | None  # as the user set it; None: no limit
    limit_bytes: int | None  # what it keeps to now: the budget, or less where its share of memory is less
    rung: Rung  # the plan that runs
    measured_peak_bytes: int  # since step `since_step`
    since_step: int  # the last step before this plan
    rungs: tuple[Rung, ...]
    compiled_directory: str
    compiled_key: str
    answered: str = ""  # the id of the last request
    refusal: str = ""  # why that request was not met; empty when it was

    def to_json(self) -> dict[str, Any]:
        rungs = {"rung": self.rung.to_json(), "rungs": [rung.to_json() for rung in self.rungs]}
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in rungs}
        return {"format": _FORMAT, **plain, **rungs}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LiveState:
        """Raises one of `BROKEN` for what `to_json` did not write."""
        if data["format"] != _FORMAT:
            raise ValueError(f"it has the format `{data['format']}`, and this version reads `{_FORMAT}`")
        plain = {name: value for name, value in data.items() if name != "format"}
        rungs = tuple(Rung.from_json(rung) for rung in data["rungs"])
        return LiveState(**{**plain, "rung": Rung.from_json(data["rung"]), "rungs": rungs})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A new budget with a plan that keeps it; without a rung only a question: how are you?"""

    id: str
    budget_bytes: int | None = None
    rung: Rung | None = None
    compiled_key: str = ""  # the kernels that the rung was built from

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "format": _FORMAT, "rung": self.rung.to_json() if self.rung is not None else None}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Request:
        """Raises one of `BROKEN` for what `to_json` did not write."""
        if data["format"] != _FORMAT:
            raise ValueError(f"it has the format `{data['format']}`, and this version reads `{_FORMAT}`")
        rung = Rung.from_json(data["rung"]) if data["rung"] is not None else None
        budget = int(data["budget_bytes"]) if data["budget_bytes"] is not None else None
        return Request(id=str(data["id"]), budget_bytes=budget, rung=rung, compiled_key=str(data["compiled_key"]))


@contextlib.contextmanager
def hold_run(folder: Path) -> Iterator[None]:
    """Marks the folder's run as running. What an earlier run left of the conversation is removed before and after.

    Raises `UsageError` when the run is going on in another process.
    """
    with claimed(folder), clean_exchange(folder):
        yield


@contextlib.contextmanager
def clean_exchange(folder: Path) -> Iterator[None]:
    """No message of an earlier run is there at the beginning, none of this run at the end."""
    _remove_messages(folder)
    try:
        yield
    finally:
        _remove_messages(folder)


def is_running(folder: Path) -> bool:
    """Whether a process has the run open now, on this machine."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_state(folder: Path, state: LiveState) -> None:
    """Raises `DeviceError` when the disk refuses."""
    _write(folder / LIVE, state.to_json())


def read_state(folder: Path) -> LiveState:
    """What the run said last. Raises `UsageError` when it does not run, `DataError` for a broken file."""
    if not is_running(folder):
        raise UsageError(
            f"`{folder}` is not running",
            why="no process has it open",
            fix="a run that was stopped goes on inside another budget with `edgetrain fit --resume --budget SIZE --out "
            f"{shlex.quote(str(folder))}`",
        )
    try:
        return LiveState.from_json(parse_json(read_regular(folder / LIVE, most_bytes=_MOST_BYTES)))
    except FileNotFoundError as error:
        raise UsageError(
            f"the run in `{folder}` cannot change its plan now",
            why="it has not begun its first step, or has ended its last",
            fix="try again in a moment",
        ) from error
    except (OSError, *BROKEN) as error:
        raise DataError(f"`{folder / LIVE}` cannot be used", why=str(error), fix="ask again") from error


class Mailbox:
    """The run's side: each request once, and a look that costs one system call where there is none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / REQUEST
        self._seen: tuple[int, int] | None = None
        self._taken = ""

    def take(self) -> Request | None:
        """The request that arrived since the last look. A file that is no request is passed over."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - this runs after every step
        except OSError:
            return None
        stamp = (status.st_ino, status.st_mtime_ns)
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            request = Request.from_json(parse_json(read_regular(self._path, most_bytes=_MOST_BYTES)))
        except (OSError, *BROKEN):
            return None
        if request.id == self._taken:  # it came between the look and the reading, and was taken then
            return None
        self._taken = request.id
        return request


def ask(folder: Path, request: Request, *, patience_s: float, waiting: Callable[[], None]) -> LiveState:
    """Leaves the request and waits until the run has answered it; `waiting` is told once that there is a wait.

    Raises `UsageError` when the run ends first, `DeviceError` when `patience_s` pass without an answer: the request
    stays, and is met at the end of the step.
    """
    ends = time.monotonic() + patience_s
    with _only_asker(folder, ends):
        _write(folder / REQUEST, request.to_json())
        told = False
        while (state := read_state(folder)).answered != request.id:
            if time.monotonic() > ends:
                raise DeviceError(
                    f"the run has not answered in {patience_s:g} s",
                    why="it answers between two steps",
                    fix="the request stands: ask `edgetrain budget RUN` again later, or wait longer with --timeout",
                )
            if not told:
                waiting()
                told = True
            time.sleep(_POLL_S)
        return state


@contextlib.contextmanager
def _only_asker(folder: Path, ends: float) -> Iterator[None]:
    """One command at a time, so that no request takes another's place. The folder itself is the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not _lock(descriptor, ends):
            raise DeviceError(
                f"another command is asking the run in `{folder}`", why="it waits for an answer", fix="ask again later"
            )
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    with replaced_file(path) as file:
        file.write((json.dumps(data, indent=1) + "\n").encode())


def _remove_messages(folder: Path) -> None:
    for name in (LIVE, REQUEST):
        with contextlib.suppress(OSError):
            disk.remove(folder / name)


def _lock(descriptor: int, ends: float) -> bool:
    """Whether the lock could be had before the monotonic clock says `ends`."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > ends:
                return False
            time.sleep(_POLL_S)
        else:
            return True
