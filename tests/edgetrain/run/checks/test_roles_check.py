"""A tensor that two layers use in two ways: what training it wrongly looks like, and that `check` says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.models.merged import merged_by_identity, untrained_batch_norm_cnn
from benchmarks.references.workshop import Workshop
from edgetrain.compiler import process
from edgetrain.graph.options import TrainOptions
from edgetrain.model.undo_exporter import Undone
from edgetrain.run.checks.check import Finding, Probe
from edgetrain.run.checks.roles_check import check_roles

pytestmark = pytest.mark.compile


@pytest.fixture
def workshop(session_folder: Path) -> Workshop:
    root = session_folder / "workshop"
    root.mkdir(exist_ok=True)
    return Workshop(root=root)


def finding(workshop: Workshop, folder: Path) -> Finding:
    compiled = workshop.compile(merged_by_identity(untrained_batch_norm_cnn()), TrainOptions(batch=4))
    probe = Probe(
        program=workshop.build(compiled, workshop.plan(compiled)),
        loss="cross-entropy",
        trained=tuple(compiled.facts["trained"]),
        threads=1,
        page_directory=folder,
    )
    return check_roles(probe, compiled.model)


def test_a_step_without_a_learning_rate_moves_running_statistics_alone(workshop: Workshop, tmp_path: Path) -> None:
    found = finding(workshop, tmp_path)
    assert found.is_ok
    assert "leaves 8 learned tensors as they are, and moves 4 of 4 running statistics" in found.text


def test_without_separation_a_scale_is_measured_and_the_check_says_so(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(proto: Any, **_globs: Any) -> Undone:
        return Undone(model=proto, rewrites=(), warnings=())

    monkeypatch.setattr(process, "undo_exporter", as_before)
    (tmp_path / "broken").mkdir()
    found = finding(Workshop(root=tmp_path / "broken"), tmp_path)  # the session's cache must not keep it
    assert not found.is_ok
    assert "learned and measured at once: `norm0.scale`, `norm0.bias`" in found.text
