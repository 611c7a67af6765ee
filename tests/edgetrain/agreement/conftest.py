"""One workshop for the whole session: what one test compiled, the next one finds."""

from __future__ import annotations

import pytest

from tests.edgetrain.agreement import torch_reference
from tests.edgetrain.agreement.workshop import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    root = tmp_path_factory.mktemp("workshop")
    (root / "run").mkdir()
    return Workshop(root=root)


@pytest.fixture(scope="session")
def needs_torch() -> None:
    if torch_reference.IS_MISSING:
        pytest.skip(f"compares with PyTorch: {torch_reference.INSTALL}")
    torch_reference.set_threads(1)  # on a busy machine, threads of small kernels mostly wait for each other
