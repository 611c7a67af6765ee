"""What a running job and the commands beside it leave for each other. The first line names the file."""

from __future__ import annotations

import fcntl
from random import Random

from edgetrain.run.limits.exchange import Mailbox, read_state
from tests.fuzz.harness import Change, documented, file_of
from tests.fuzz.mutations import mutate_json


def one_input(data: bytes) -> None:
    name, _, content = data.partition(b"\n")
    if name == b"request.json":
        with file_of(content, "request.json") as path:
            Mailbox(path.parent).take()  # a file that is no request is passed over: nothing may end the run
    elif name == b"live.json":
        with documented(), file_of(content, "live.json") as path, (path.parent / "run.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as a run holds it: nobody reads the state of one that has ended
            read_state(path.parent).to_json()


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    name, _, content = data.partition(b"\n")
    return name + b"\n" + mutate_json(content, random, change)
