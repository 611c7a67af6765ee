"""The work of differentiating grows with the graph and not faster: counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.importing.onnx_models import mlp
from edgetrain.graph import autodiff
from edgetrain.graph.build import build_step
from edgetrain.graph.options import TrainOptions
from edgetrain.model.importer import import_model


def _visits(layers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    visits = 0
    original = autodiff._flat_variables

    def counted(inputs: Any) -> Any:
        nonlocal visits
        visits += 1
        return original(inputs)

    with monkeypatch.context() as patch:
        patch.setattr(autodiff, "_flat_variables", counted)
        model = import_model(mlp(layers=[4] * (layers + 1)), name="deep", batch=2)
        build_step(model, TrainOptions(batch=2, loss="mse"))
    return visits


def test_twice_the_layers_are_visited_twice_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = _visits(8, monkeypatch), _visits(32, monkeypatch)
    assert small > 8
    assert large < 5 * small
