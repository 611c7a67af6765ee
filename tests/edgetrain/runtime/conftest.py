"""One workshop for the whole session: what one test compiled, the next one finds, in whatever process it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.references.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(session_folder: Path) -> Workshop:
    root = session_folder / "workshop"
    root.mkdir(exist_ok=True)
    return Workshop(root=root)
