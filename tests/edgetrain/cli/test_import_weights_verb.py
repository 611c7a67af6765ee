"""`edgetrain import-weights`: a device's bytes become a model again, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from edgetrain.graph.ir import EVALUATE, Role, evaluated
from edgetrain.program.artifact import load_artifact
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.predict.bundle import DATA, READING
from tests.edgetrain.cli.conftest import SHORT, Command

pytestmark = pytest.mark.compile


@pytest.fixture(scope="module")
def exported(command: Command, short_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The short run's program, as a device gets it."""
    folder = tmp_path_factory.mktemp("device") / "program"
    assert command("export", short_run, "--program", folder, cwd=folder.parent).returncode == 0
    return folder


def trained_on_device(exported: Path, path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Writes what the program would save after its parameters have changed; returns its answer to an image of ones."""
    program = load_artifact(exported)
    with LocalEngine(program, threads=1, page_directory=path.parent) as engine:
        for tensor in program.graph.by_role(Role.PARAMETER):
            engine.tensor(tensor.name)[...] *= 1.25
        engine.tensor("image")[...] = 1
        engine.call(EVALUATE)
        path.write_bytes(bytes(engine.saved))
        (name,) = (t.name for t in program.graph.by_role(Role.OUTPUT) if t.name.startswith(evaluated("")))
        found: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = engine.tensor(name).copy()
    return found


def test_the_imported_model_answers_as_the_device_does(
    command: Command, short_run: Path, exported: Path, tmp_path: Path
) -> None:
    answer = trained_on_device(exported, tmp_path / "trained.bin")
    done = command("import-weights", short_run, "trained.bin", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["onnx"], found["changed"]) == ("trained.onnx", found["parameters"])
    session = onnxruntime.InferenceSession(str(tmp_path / "trained.onnx"), providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": np.ones((len(answer), 1, 8, 8), np.float32)})[0]
    np.testing.assert_allclose(logits, answer, rtol=1e-4, atol=1e-5)
    np.savez(tmp_path / "x.npz", x=np.ones((1, 8, 8), np.float32))
    predicted = command("predict", "trained.onnx", "x.npz", "--json", cwd=tmp_path)
    assert json.loads(predicted.stdout)["predictions"][0]["label"] == str(answer[0].argmax())


def test_bytes_that_did_not_change_give_the_runs_own_weights_and_a_warning(
    command: Command, short_run: Path, exported: Path, tmp_path: Path
) -> None:
    words = ("import-weights", short_run, exported / "parameters.bin", "--program", exported, "--onnx", "same.onnx")
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no parameter in" in done.stderr
    own, same = (onnx.load(str(path)) for path in (short_run / "model.onnx", tmp_path / "same.onnx"))
    for one, other in zip(own.graph.initializer, same.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))


def test_adapters_that_a_device_trained_are_merged(command: Command, tmp_path: Path) -> None:
    """The program's own parameters are those of the run, so the model must come out as the run wrote it."""
    done = command("fit", *SHORT, "update.mode=lora", "--out", "lora", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert command("export", "lora", "--program", "there", cwd=tmp_path).returncode == 0
    done = command("import-weights", "lora", "there/parameters.bin", "--onnx", "same.onnx", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "same.onnx").read_bytes() == (tmp_path / "lora" / "model.onnx").read_bytes()
    (tmp_path / "lora" / "adapters.json").unlink()
    refused = command("import-weights", "lora", "there/parameters.bin", "--onnx", "again.onnx", cwd=tmp_path)
    assert refused.returncode == 5
    assert "adapters.json` cannot be used" in refused.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "has 0 bytes, and this program saves"), (b"cut", "has 3 bytes"), (None, "cannot be read")],
)
def test_bytes_of_another_size_are_refused(
    content: bytes | None, told: str, command: Command, short_run: Path, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "trained.bin").write_bytes(content)
    done = command("import-weights", short_run, "trained.bin", cwd=tmp_path)
    assert done.returncode == 5
    assert told in done.stderr
    assert not (tmp_path / "trained.onnx").exists()


def test_a_training_that_diverged_is_refused_by_the_name_of_the_tensor(
    command: Command, short_run: Path, exported: Path, tmp_path: Path
) -> None:
    manifest = load_artifact(exported).manifest
    content = bytearray((exported / "parameters.bin").read_bytes()[: manifest.saved_bytes])
    name = next(name for name, tensor in manifest.tensors.items() if tensor.role is Role.PARAMETER)
    start = manifest.tensors[name].start_in_file
    content[start : start + 4] = np.float32(np.nan).tobytes()
    (tmp_path / "trained.bin").write_bytes(content)
    done = command("import-weights", short_run, "trained.bin", cwd=tmp_path)
    assert done.returncode == 5
    assert "holds NaN or infinity in 1 of" in done.stderr
    assert f"`{name}` first" in done.stderr


def test_a_model_that_is_there_is_not_replaced_unasked(
    command: Command, short_run: Path, exported: Path, tmp_path: Path
) -> None:
    trained_on_device(exported, tmp_path / "trained.bin")
    (tmp_path / "trained.onnx").write_text("mine")
    done = command("import-weights", short_run, "trained.bin", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "trained.onnx").read_text() == "mine"


def test_the_program_says_how_to_read_data_for_it(exported: Path) -> None:
    assert {READING, DATA} <= load_artifact(exported).manifest.files.keys()
