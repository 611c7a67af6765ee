"""What is refused changes nothing of a run: not a refused `--resume`, not a file that is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edgetrain.files.build_cache import file_sha256
from edgetrain.run.files.checkpoint import NEWEST, read_header
from tests.edgetrain.cli.conftest import Command

pytestmark = pytest.mark.compile

MORE = "train.epochs=2"


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "override",
    [
        "train.optimizer=sgd",
        "train.seed=5",
        "train.batch=16",
        "data.validation=0.5",
        "model.source=zoo:digits-cnn-bn",
        "update.mode=last",
    ],
)
def test_a_refused_resume_changes_no_file(override: str, command: Command, copied_run: Path) -> None:
    before = content(copied_run)
    done = command("fit", "--resume", MORE, override, cwd=copied_run.parents[1])
    assert done.returncode in (2, 5), done.stderr
    assert content(copied_run) == before


def write_data(path: Path, seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    np.savez(path, x=rng.standard_normal((64, 6)).astype(np.float32), y=np.arange(64) % 3)


def test_a_run_goes_on_with_other_data_only_when_told_so(command: Command, mlp: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    write_data(data, 1)
    words = (f"data.source={data}", "train.epochs=1", "train.batch=8", "--out", "run")
    assert command("fit", mlp, *words, cwd=tmp_path).returncode == 0
    write_data(data, 2)
    before = content(tmp_path / "run")
    resume = ("fit", "--resume", "--out", "run", MORE)
    done = command(*resume, cwd=tmp_path)
    assert done.returncode == 5
    assert "the data is not what the run began with" in done.stderr
    assert "add --new-data" in done.stderr
    assert content(tmp_path / "run") == before
    steps = read_header(tmp_path / "run" / NEWEST).progress.step
    on_purpose = command(*resume, "--new-data", cwd=tmp_path)
    assert on_purpose.returncode == 0, on_purpose.stderr
    assert read_header(tmp_path / "run" / NEWEST).progress.step == 2 * steps
    (tmp_path / "run" / "data.json").unlink()  # as in runs of older versions
    write_data(data, 3)
    assert command(*resume[:-1], "train.epochs=3", cwd=tmp_path).returncode == 0


def test_new_data_is_for_runs_that_go_on(command: Command, tmp_path: Path) -> None:
    done = command("fit", "--new-data", cwd=tmp_path)
    assert done.returncode == 2
    assert "--new-data needs --resume" in done.stderr


@pytest.mark.parametrize("name", ["recipe.json", "job.json", "reading.json", "schedules.json", "data.json"])
def test_a_changed_bit_in_a_file_of_the_run_stops_what_reads_it(name: str, command: Command, copied_run: Path) -> None:
    path = copied_run / name
    text = bytearray(path.read_bytes())
    text[text.index(b": ") + 3] ^= 1
    path.write_bytes(text)
    before = content(copied_run)
    done = command("fit", "--resume", MORE, cwd=copied_run.parents[1])
    assert done.returncode == 5, done.stderr
    assert "check sum" in done.stderr
    assert content(copied_run) == before


@pytest.mark.parametrize("damage", ["empty", "random", "link", "bit"])
def test_a_model_that_the_run_did_not_write_is_not_exported(damage: str, command: Command, copied_run: Path) -> None:
    model = copied_run / "model.onnx"
    whole = model.read_bytes()
    match damage:
        case "empty":
            model.write_bytes(b"")
        case "random":
            model.write_bytes(bytes(range(256)) * 4)
        case "bit":
            model.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
        case "link":
            shutil.move(model, copied_run / "elsewhere.onnx")
            model.symlink_to("elsewhere.onnx")
    for kind in ("--onnx", "--safetensors"):
        done = command("export", copied_run, kind, "out.file", cwd=copied_run.parents[1])
        assert done.returncode == 5, done.stderr
        assert "is not what the run wrote" in done.stderr
        assert not (copied_run.parents[1] / "out.file").exists()
