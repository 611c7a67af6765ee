"""Every block of docs/logging.md runs, W&B and MLflow against stand-ins that keep what they are told.

The stand-ins are no proof that the services take it: the real packages need a server or an account, and none is here.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.edgetrain.test_readme import ROOT, blocks

PAGE = ROOT / "docs" / "logging.md"
EPOCHS = 2

pytestmark = pytest.mark.compile


class WandbStandIn(types.ModuleType):
    """`wandb` as far as the page uses it; like the real one it takes steps in rising order only."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.logged: list[tuple[int | None, Mapping[str, float]]] = []
        self.is_finished = False

    def init(self, *, project: str, config: Mapping[str, float]) -> WandbStandIn:
        assert project
        assert config["steps"] > 0
        return self

    def log(self, values: Mapping[str, float], *, step: int | None = None) -> None:
        steps = [step for step, _ in self.logged if step is not None]
        assert step is None or not steps or step > steps[-1]
        self.logged.append((step, values))

    def finish(self) -> None:
        self.is_finished = True


class MlflowStandIn(types.ModuleType):
    """`mlflow` as far as the page uses it."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.metrics: list[tuple[str, int]] = []
        self.artifacts: list[Path] = []
        self.is_active = False

    @contextlib.contextmanager
    def start_run(self) -> Iterator[None]:
        self.is_active = True
        yield
        self.is_active = False

    def log_params(self, values: Mapping[str, object]) -> None:
        assert self.is_active
        assert values

    def log_metric(self, key: str, value: float, *, step: int) -> None:
        assert self.is_active
        self.metrics.append((key, step))

    def log_metrics(self, values: Mapping[str, float], *, step: int) -> None:
        for key, value in values.items():
            self.log_metric(key, value, step=step)

    def log_artifact(self, path: str) -> None:
        assert self.is_active
        self.artifacts.append(Path(path))


@pytest.fixture
def page(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The blocks by the tool that they name, to be run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    kinds = {"wandb": "import wandb", "mlflow": "import mlflow", "tensorboard": "TensorBoard", "files": "import json"}
    found = blocks(PAGE, "python")
    assert len(found) == len(kinds)
    return {kind: next(block for block in found if mark in block) for kind, mark in kinds.items()}


def _run(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_log_can_be_read_as_the_page_says(page: Mapping[str, str]) -> None:
    run = _run(page["tensorboard"])["run"]
    assert any(Path("events/first").iterdir())
    names = _run(page["files"])
    assert names["losses"] == list(run.losses)
    assert names["accuracy"] == {v.epoch: v.metrics["accuracy"] for v in run.report.validations}


def test_the_callback_for_wandb_logs_every_step_and_epoch(
    page: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = WandbStandIn()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    run = _run(page["wandb"])["run"]
    assert [step for step, _ in wandb.logged if step is not None] == list(range(1, len(run.losses) + 1))
    assert sum("epoch/validation_accuracy" in values for _, values in wandb.logged) == EPOCHS
    assert wandb.is_finished


def test_the_callback_for_mlflow_logs_every_step_and_epoch_and_the_model(
    page: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = MlflowStandIn()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    run = _run(page["mlflow"])["run"]
    assert [step for key, step in mlflow.metrics if key == "loss"] == list(range(1, len(run.losses) + 1))
    assert [step for key, step in mlflow.metrics if key == "epoch_validation_accuracy"] == [1, 2]
    assert [path.name for path in mlflow.artifacts] == ["model.onnx"]
