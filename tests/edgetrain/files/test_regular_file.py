"""Claims about pipes, devices and sockets in the place of files: they are refused at once, wherever a file is read."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgetrain.dataset.idx import read_idx
from edgetrain.dataset.pictures import read_picture
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.sources import find_source
from edgetrain.dataset.tokenizer_file import read_tokenizer_file
from edgetrain.dataset.unlabelled import unlabelled
from edgetrain.dataset.wav import opened
from edgetrain.dataset.wordpiece import read_vocabulary
from edgetrain.errors import DataError, EdgetrainError, ModelError, UsageError
from edgetrain.files.regular_file import require_regular, require_regular_files
from edgetrain.files.safetensors_file import read_safetensors
from edgetrain.model.load import load_onnx
from edgetrain.model.torch_file import read_torch_state
from edgetrain.pipeline.classes import _structure
from edgetrain.pipeline.source import recipe_of
from edgetrain.program.artifact import load_artifact
from edgetrain.recipes import DataSection, load_recipe
from edgetrain.run.files.folders import JobRecord
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import read_recipe
from edgetrain.targets.profile import load_target


@pytest.fixture
def alarm() -> Iterator[None]:
    """A reader that waits after all fails its test, and does not stop all of them."""

    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def open_wav(path: Path) -> None:
    with opened(path):
        pass


def predict(path: Path) -> None:
    for item in unlabelled([path], DataSection(source="x"), Reading(), kind="csv"):
        item.load()


def named_model(path: Path) -> None:
    recipe_of(str(path.rename(path.with_suffix(".onnx"))), (), needs_data=False)


def beside(name: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Reads the folder in which the pipe has the name."""

    def read_folder(pipe: Path) -> object:
        pipe.rename(pipe.with_name(name))
        return read(pipe.parent)

    return read_folder


READERS: dict[str, tuple[Callable[[Path], object], type[EdgetrainError]]] = {
    "data": (lambda path: find_source(str(path)), DataError),
    "idx": (read_idx, DataError),
    "wav": (open_wav, DataError),
    "picture": (read_picture, DataError),
    "predict": (predict, DataError),
    "vocabulary": (read_vocabulary, DataError),
    "tokenizer": (lambda path: read_tokenizer_file(path, length=8), DataError),
    "recipe": (load_recipe, UsageError),
    "target": (load_target, UsageError),
    "model": (load_onnx, ModelError),
    "named model": (named_model, ModelError),
    "weights": (read_safetensors, ModelError),
    "state": (read_torch_state, ModelError),
    "run": (beside("recipe.json", lambda folder: read_recipe(RunFolder(folder))), DataError),
    "reading": (beside("reading.json", lambda folder: read_recipe(RunFolder(folder))), DataError),
    "job": (beside("job.json", JobRecord.read), DataError),
    "program": (beside("graph.json", load_artifact), DataError),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.usefixtures("alarm")
def test_no_reader_waits_for_a_pipe(reader: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read, error = READERS[reader]
    with pytest.raises(error, match="is a pipe, not a file"):
        read(tmp_path / "pipe")


def test_a_pipe_in_the_place_of_a_model_names_no_classes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    assert _structure(str(tmp_path / "pipe.onnx")) is None


def test_devices_and_sockets_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="/dev/zero` is a device"):
        require_regular(Path("/dev/zero"), UsageError)
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(DataError, match="`s` is a socket"):
            require_regular(Path("s"), DataError)


def test_a_link_to_a_pipe_is_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.csv").symlink_to(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"a\.csv` is a pipe"):
        require_regular_files(tmp_path, DataError)


def test_files_folders_links_to_them_and_nothing_pass(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    require_regular_files(tmp_path, DataError)
    require_regular(tmp_path / "nothing", DataError)
    require_regular(Path("a\0b"), DataError)
