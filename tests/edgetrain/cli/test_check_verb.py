from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.edgetrain.cli.conftest import Command

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("source", ["digits", "zoo:digits-cnn-bn"])
def test_a_small_cnn_trains_right(command: Command, source: str, tmp_path: Path) -> None:
    done = command("check", source, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert list(findings) == ["import", "steps", "gradients", "plan"]
    assert all(finding["is_ok"] for finding in findings.values())
    assert "the same bits as unplanned" in findings["plan"]["text"]


@pytest.mark.parametrize("loss", ["cross-entropy", "bce", "mse", "l1"])
def test_a_users_mlp_trains_right_with_every_loss(command: Command, mlp: Path, loss: str, tmp_path: Path) -> None:
    done = command("check", mlp, f"train.loss={loss}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[:4]] == [
        ["import", "ok"],
        ["steps", "ok"],
        ["gradients", "ok"],
        ["plan", "ok"],
    ]
    assert done.stdout.endswith("\nmlp trains here\n")


def test_every_unsupported_op_is_named(command: Command, unsupported_model: Path, tmp_path: Path) -> None:
    done = command("check", unsupported_model, cwd=tmp_path)
    assert done.returncode == 4
    assert "Frobnicate" in done.stderr
    assert "Defenestrate" in done.stderr


def test_a_budget_that_cannot_be_kept_exits_3(command: Command, tmp_path: Path) -> None:
    assert command("check", "digits", "--budget", "1kB", cwd=tmp_path).returncode == 3
