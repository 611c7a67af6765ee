"""One workshop for the whole session: what one test compiled, the next one finds, in whatever process it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.references import optional_torch
from benchmarks.references.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(session_folder: Path) -> Workshop:
    root = session_folder / "workshop"
    root.mkdir(exist_ok=True)
    return Workshop(root=root)


@pytest.fixture(scope="session")
def needs_torch() -> None:
    if optional_torch.IS_MISSING:
        pytest.skip(f"compares with PyTorch: {optional_torch.INSTALL}")
    optional_torch.set_threads(1)  # on a busy machine, threads of small kernels mostly wait for each other
