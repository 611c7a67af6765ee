"""One workshop for the whole session: what one test compiled, the next one finds."""

from __future__ import annotations

import pytest

from tests.edgetrain.agreement import optional_torch
from tests.edgetrain.agreement.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    root = tmp_path_factory.mktemp("workshop")
    (root / "run").mkdir()
    return Workshop(root=root)


@pytest.fixture(scope="session")
def needs_torch() -> None:
    if optional_torch.IS_MISSING:
        pytest.skip(f"compares with PyTorch: {optional_torch.INSTALL}")
    optional_torch.set_threads(1)  # on a busy machine, threads of small kernels mostly wait for each other
