"""`eval` and `export`: what a finished run is good for."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from safetensors.numpy import load_file

from edgetrain.dataset.batches import fill_rows
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.load import load_dataset
from edgetrain.files.build_cache import BuildCache
from edgetrain.program.artifact import load_artifact
from edgetrain.recipes import Recipe
from tests.edgetrain.cli.conftest import Command

pytestmark = pytest.mark.compile


def test_eval_repeats_what_the_report_says(command: Command, short_run: Path, tmp_path: Path) -> None:
    done = command("eval", short_run, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, report = json.loads(done.stdout), json.loads((short_run / "report.json").read_text())
    assert (found["accuracy"], found["loss"]) == (report["test_accuracy"], report["test_loss"])
    assert (found["part"], found["samples"]) == ("test", 355)


def test_eval_needs_no_compiler(command: Command, short_run: Path, tmp_path: Path, build_cache: BuildCache) -> None:
    """Of the build cache it needs to know what was built, and nothing that was."""
    empty = tmp_path / "cache"
    builds = empty / "edgetrain" / "builds"
    shutil.copytree(build_cache.root / "programs", builds / "programs")
    done = command("eval", short_run, cwd=tmp_path, environment={"XDG_CACHE_HOME": str(empty)})
    assert done.returncode == 0, done.stderr
    assert [path.name for path in builds.iterdir()] == ["programs"]


def test_eval_on_other_data_without_parts_reads_all_of_it(command: Command, short_run: Path, tmp_path: Path) -> None:
    test = load_dataset(Recipe.from_json((short_run / "recipe.json").read_text()).data).test
    assert test is not None
    np.savez(tmp_path / "other.npz", x=np.stack([test.features[i] for i in range(len(test))]), y=test.labels)
    done = command("eval", short_run, "--data", "other.npz", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, report = json.loads(done.stdout), json.loads((short_run / "report.json").read_text())
    assert (found["part"], found["samples"]) == ("whole", 355)
    assert found["accuracy"] == report["test_accuracy"]


def test_eval_on_data_of_another_shape_is_refused(command: Command, short_run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", x=np.zeros((40, 9, 9), np.float32), y=np.zeros(40, np.int64))
    done = command("eval", short_run, "--data", "wide.npz", cwd=tmp_path)
    assert done.returncode == 5


def test_a_program_that_was_changed_is_not_run(command: Command, copied_run: Path, tmp_path: Path) -> None:
    parameters = copied_run / "program" / "parameters.bin"
    parameters.write_bytes(parameters.read_bytes()[:-1] + b"x")
    done = command("eval", copied_run, cwd=tmp_path)
    assert done.returncode == 5
    assert "is not the file this program was built with" in done.stderr


def test_onnx_runtime_agrees_with_the_exported_model(command: Command, short_run: Path, tmp_path: Path) -> None:
    done = command("export", short_run, "--onnx", "trained.onnx", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    recipe = Recipe.from_json((short_run / "recipe.json").read_text())
    part = load_dataset(recipe.data).test
    assert part is not None
    x, y = np.zeros((len(part), 1, 8, 8), np.float32), np.zeros(len(part), np.int64)
    fill_rows(part, np.arange(len(part)), x, y, Conversion.of(recipe.data))
    session = onnxruntime.InferenceSession(str(tmp_path / "trained.onnx"), providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": x})[0].astype(np.float64)
    report = json.loads((short_run / "report.json").read_text())
    assert np.mean(logits.argmax(axis=1) == y) == pytest.approx(report["test_accuracy"])
    largest = logits.max(axis=1)
    loss = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest - logits[np.arange(len(y)), y]
    assert loss.mean() == pytest.approx(report["test_loss"], rel=1e-5)


def test_exported_weights_are_those_of_the_model_under_its_names(
    command: Command, short_run: Path, tmp_path: Path
) -> None:
    done = command("export", short_run, "--safetensors", "there/trained.safetensors", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "safetensors there/trained.safetensors\n"), done.stderr
    found = load_file(tmp_path / "there" / "trained.safetensors")
    model = onnx.load(str(short_run / "model.onnx"))
    expected = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == TensorProto.FLOAT}
    assert {"head.weight", "head.bias"} <= set(found)
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_an_unfinished_run_has_no_model_to_export(command: Command, copied_run: Path, tmp_path: Path) -> None:
    (copied_run / "model.onnx").unlink()
    done = command("export", copied_run, "--onnx", "trained.onnx", cwd=tmp_path)
    assert done.returncode == 5
    assert "hint: finish it with `edgetrain fit digits --resume --out" in done.stderr
    assert not (tmp_path / "trained.onnx").exists()


def test_the_exported_program_starts_from_the_trained_parameters(
    command: Command, short_run: Path, tmp_path: Path
) -> None:
    done = command("export", short_run, "--program", "there", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"program": "there"}
    ours, exported = load_artifact(short_run / "program"), load_artifact(tmp_path / "there")
    assert exported.manifest.files["driver.c"] == ours.manifest.files["driver.c"]
    report = json.loads((short_run / "report.json").read_text())
    saved = exported.parameters.read_bytes()[: exported.manifest.saved_bytes]
    assert hashlib.sha256(saved).hexdigest() == report["parameters_sha256"]


def test_export_never_replaces_a_folder_that_is_no_program(command: Command, short_run: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    done = command("export", short_run, "--program", precious, cwd=tmp_path)
    assert done.returncode == 2
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_export_onto_an_older_export_leaves_the_users_files(command: Command, short_run: Path, tmp_path: Path) -> None:
    assert command("export", short_run, "--program", "there", cwd=tmp_path).returncode == 0
    (tmp_path / "there" / "train.c").write_text("mine")
    assert command("export", short_run, "--program", "there", cwd=tmp_path).returncode == 0
    assert (tmp_path / "there" / "train.c").read_text() == "mine"
    (tmp_path / "there" / "driver.c").write_text("changed")
    done = command("export", short_run, "--program", "there", cwd=tmp_path)
    assert done.returncode == 2
    assert "`there/driver.c` is not a file that edgetrain wrote, or was changed since" in done.stderr
    assert (tmp_path / "there" / "driver.c").read_text() == "changed"


def test_the_program_of_another_target_is_built_for_it(command: Command, tmp_path: Path) -> None:
    words = ("digits", "train.epochs=1", "data.limit=256", "--target", "jetson", "--budget", "2GB")
    assert command("fit", *words, "-q", cwd=tmp_path).returncode == 0
    done = command("export", "runs/digits", "--program", "there", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load_artifact(tmp_path / "there").manifest.triple.startswith("aarch64")
