"""Our side of a peer's process: starts it, asks it for steps, ends it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers.protocol import GROW, STEP, CannotError, Job, Turn

_LAST_CHARACTERS = 2000  # of what a peer that died has said
_LAST_CHARACTERS_SHOWN = 120  # in a table
_ROOT = Path(__file__).parents[2]


log = logging.getLogger(__name__)


class PeerProcess:
    """A peer that is ready to take steps. Raises `CannotError` where it cannot train the model, or dies of it."""

    def __init__(self, job: Job, pythons: Mapping[str, str]) -> None:
        """`pythons` names the interpreter of peers that do not live in this environment."""
        self.version = ""  # known when it is ready
        self._peer = job.peer
        self._talk = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed by `close`
        self._process = subprocess.Popen(
            [pythons.get(job.peer, sys.executable), "-m", "benchmarks.peers.serve", job.to_json()],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._talk,
            text=True,
        )

    def __enter__(self) -> Self:
        try:
            first = self._answer()
            if "cannot" in first:
                raise CannotError(first["cannot"])
            self.version = str(first["ready"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def turn(self, count: int) -> Turn:
        """That many steps, timed by the peer's own clock."""
        return Turn(**self._ask(f"{STEP} {count}"))

    def grown_bytes(self) -> int:
        """Ends what the process can do: it measures how much it grows over three steps."""
        grown: int = self._ask(GROW)["bytes"]
        return grown

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it is dead already
                self._process.stdin.close()  # the end of its input ends the peer
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._talk.close()

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer
            print(command, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries greet on standard output
                found: dict[str, Any] = json.loads(line)
                return found
        self._process.wait()
        self._talk.seek(0)
        said = self._talk.read()[-_LAST_CHARACTERS:]
        log.warning("%s ended with %d:\n%s", self._peer, self._process.returncode, said)
        last_line = (said.strip().splitlines() or ["nothing said"])[-1]
        raise CannotError(f"ended with {self._process.returncode}: {last_line[:_LAST_CHARACTERS_SHOWN]}")
