"""Broken files are imported or refused with a documented error. `benchmarks/fuzz_importer.py` runs thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.importing.fuzzing import BATCH, networks, outcome_of
from benchmarks.importing.onnx_models import mlp
from benchmarks.importing.onnx_mutations import mutate
from edgetrain.model.importer import import_model

_CHUNK = 50


@pytest.mark.parametrize("first", range(0, 400, _CHUNK))
def test_a_broken_file_is_imported_or_refused_with_a_documented_error(first: int, tmp_path: Path) -> None:
    outcomes = {number: outcome_of(number, tmp_path) for number in range(first, first + _CHUNK)}
    assert {n: o for n, o in outcomes.items() if o.startswith("BUG")} == {}
    assert set(outcomes.values()) >= {"imported", "ModelError", "UnsupportedError"}, "the mutations reach every end"


def test_the_same_number_breaks_a_file_in_the_same_way() -> None:
    assert mutate(mlp(), 7) == mutate(mlp(), 7)
    assert len({mutate(mlp(), seed) for seed in range(20)}) == 20


def test_an_undocumented_error_is_called_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_settings: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("benchmarks.importing.fuzzing.import_model", fail)
    outcomes = {outcome_of(number, tmp_path) for number in range(20)}
    assert "BUG KeyError: 'lost'" in outcomes


def test_the_networks_that_are_broken_are_sound_before() -> None:
    for model in networks():
        assert import_model(model, name="sound", batch=BATCH).outputs
