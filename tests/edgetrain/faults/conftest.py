"""The faulty disk keeps account of what was synced: here nothing waits for the real one."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edgetrain_tuner import disk


class Hasty(sqlite3.Connection):
    def execute(self, *values: Any) -> sqlite3.Cursor:
        return super().execute("PRAGMA synchronous = OFF" if "synchronous" in values[0] else values[0], *values[1:])


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def database(path: Path, *, timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False, factory=Hasty)

    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(disk, "database", database)
