"""Programs that page, on three threads, under GCC's sanitizers: nothing to report, and the engine's bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.references.workshop import Workshop
from tests.edgetrain.runtime.sanitizers import SANITIZERS, Sanitizer, build, run
from tests.edgetrain.runtime.sessions import NETWORKS, Session, tiny_session

pytestmark = pytest.mark.compile

THREADS = 3


def _train(session: Session, sanitizer: Sanitizer, folder: Path, *options: str) -> bytes:
    session.lay_out(folder)
    application = build(folder, session.program, sanitizer, ("train.c", "session.c"), options=options)
    run(application, sanitizer, str(THREADS))
    return (folder / "trained.bin").read_bytes()


@pytest.mark.parametrize("sanitizer", SANITIZERS, ids=lambda sanitizer: sanitizer.name)
@pytest.mark.parametrize("plan", ["page", "page unaligned", "store"])
def test_a_program_with_kernels_in_c_trains_cleanly_to_the_engines_bits(
    plan: str, sanitizer: Sanitizer, tmp_path: Path
) -> None:
    session = tiny_session(plan)
    assert _train(session, sanitizer, tmp_path / "program") == session.trained_by_engine(tmp_path)


@pytest.mark.parametrize("sanitizer", SANITIZERS, ids=lambda sanitizer: sanitizer.name)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_with_compiled_kernels_trains_cleanly_to_the_engines_bits(
    name: str, sanitizer: Sanitizer, workshop: Workshop, tmp_path: Path
) -> None:
    session = NETWORKS[name](workshop)
    assert _train(session, sanitizer, tmp_path / "program") == session.trained_by_engine(tmp_path)


@pytest.mark.parametrize("option", ["-DEDGE_NO_THREADS", "-DEDGE_PROFILE"])
def test_the_other_builds_of_the_runtime_train_cleanly_to_the_engines_bits(option: str, tmp_path: Path) -> None:
    session = tiny_session("page unaligned")
    trained = _train(session, SANITIZERS[0], tmp_path / "program", option)
    assert trained == session.trained_by_engine(tmp_path)
