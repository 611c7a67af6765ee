"""The log of a run: its history, and where a resumed run goes on. No run fails for it."""

from __future__ import annotations

from random import Random

from edgetrain.run.files.history import read_history
from edgetrain.run.loop.step_log import open_log, read_records
from tests.fuzz.harness import Change, file_of
from tests.fuzz.mutations import mutate_json, mutate_lines


def one_input(data: bytes) -> None:
    with file_of(data, "log.jsonl") as path:
        history = read_history(path, best_step=2, most_steps=8, most_validations=2)
        assert len(history.steps) == len(history.losses) <= 8
        open_log(path, after_step=2, validated_step=1).close()
        for record in read_records(path):
            assert record["step"] <= 2
    with file_of(data, "log.jsonl") as path:
        open_log(path, after_step=10**6).close()


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    return mutate_lines(data, random, change, mutate_json)
