"""`edgetrain predict`: photos in, names of classes and probabilities out."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.unlabelled import unlabelled
from edgetrain.recipes import load_recipe
from edgetrain.run.predict.model import predict_items
from edgetrain.run.predict.onnx_model import open_onnx_model
from tests.edgetrain.cli.conftest import Command

pytestmark = pytest.mark.compile

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SAMPLES, HELD_OUT = 300, 60


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Handwritten digits as PNG files, a folder for each class: `train` to learn from, `later` to predict."""
    folder = tmp_path_factory.mktemp("photos")
    part = load_dataset(load_recipe("digits").data).train
    for number in range(SAMPLES):
        parent = folder / ("later" if number < HELD_OUT else "train") / NAMES[int(part.labels[number])]
        parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(part.features[number]).save(parent / f"{number:03}.png")
    return folder


@pytest.fixture(scope="module")
def trained(command: Command, photos: Path) -> Path:
    """A run of the digits network on the photos."""
    words = ("digits", "data.source=train", "data.format=auto", "data.limit=none", "train.epochs=4")
    done = command("fit", *words, "-q", cwd=photos)
    assert done.returncode == 0, done.stderr
    return photos / "runs" / "digits"


def predicted(command: Command, *words: object, cwd: Path) -> list[dict[str, Any]]:
    done = command("predict", *words, "--json", "--top", 10, cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["predictions"]
    return found


def test_photos_get_the_names_of_their_classes_as_often_as_eval_says(
    command: Command, trained: Path, photos: Path
) -> None:
    found = predicted(command, "runs/digits", "later", cwd=photos)
    assert [p["name"] for p in found] == sorted(str(f.relative_to(photos)) for f in photos.glob("later/*/*.png"))
    assert all(sum(c["probability"] for c in p["classes"]) == pytest.approx(1) for p in found)
    assert all(p["classes"][0] == {"label": p["label"], "probability": p["probability"]} for p in found)
    right = [p["label"] == Path(p["name"]).parent.name for p in found]
    evaluated = command("eval", "runs/digits", "--data", "later", "--json", cwd=photos)
    accuracy = json.loads(evaluated.stdout)["accuracy"]
    assert np.mean(right) == pytest.approx(accuracy)
    assert accuracy > 0.5  # else any order of the names would do
    for row in json.loads(evaluated.stdout)["classes"]:
        own = [r for p, r in zip(found, right, strict=True) if Path(p["name"]).parent.name == row["label"]]
        assert (row["right"], row["samples"]) == (sum(own), len(own))
    losses = [
        -np.log(c["probability"]) for p in found for c in p["classes"] if c["label"] == Path(p["name"]).parent.name
    ]
    assert np.mean(losses) == pytest.approx(json.loads(evaluated.stdout)["loss"], rel=1e-4)


def test_the_model_alone_says_the_same_anywhere(
    command: Command, trained: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(photos / "later", tmp_path / "later")
    shutil.copyfile(trained / "model.onnx", tmp_path / "alone.onnx")
    by_run = predicted(command, trained, "later", cwd=tmp_path)
    by_model = predicted(command, "alone.onnx", "later", cwd=tmp_path)
    assert [p["label"] for p in by_model] == [p["label"] for p in by_run]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    model = open_onnx_model(tmp_path / "alone.onnx")
    about = model.description
    items = unlabelled([tmp_path / "later"], about.data, about.reading, kind=about.data_kind)
    by_evaluator = list(predict_items(model, items))
    for one, other, third in zip(by_run, by_model, by_evaluator, strict=True):
        assert other["probability"] == pytest.approx(one["probability"], rel=1e-4)
        assert third.probability == pytest.approx(one["probability"], rel=1e-4)
        assert third.label == one["label"]


def test_a_broken_file_is_named_and_the_others_are_predicted(command: Command, trained: Path, tmp_path: Path) -> None:
    for name in ("a.png", "c.png"):
        Image.fromarray(np.full((8, 8), 90, np.uint8)).save(tmp_path / name)
    (tmp_path / "b.png").write_bytes(b"no picture")
    words = ("a.png", "b.png", "missing.png", "c.png")
    done = command("predict", trained, *words, cwd=tmp_path)
    assert done.returncode == 5
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["a.png", "c.png"]
    assert "error: b.png is not an image that can be read" in done.stderr
    assert "error: there is no file missing.png" in done.stderr
    assert "warning: error" not in done.stderr
    assert done.stderr.endswith("2 of 4 could not be predicted\n")
    as_json = json.loads(command("predict", trained, *words, "--json", cwd=tmp_path).stdout)
    assert as_json["failed"] == 2
    assert ["error" in p for p in as_json["predictions"]] == [False, True, True, False]
    assert as_json["predictions"][0]["classes"] == as_json["predictions"][3]["classes"]


def test_csv_has_a_row_for_each_file_in_order(command: Command, trained: Path, photos: Path) -> None:
    files = sorted(photos.glob("later/*/*.png"))[:3]
    done = command("predict", trained, files[2], "gone.png", files[0], "--csv", "--top", 2, cwd=photos)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["name"] for row in rows] == [str(files[2]), "gone.png", str(files[0])]
    assert list(rows[0]) == ["name", "label", "probability", "label_2", "probability_2", "error"]
    assert rows[1]["label"] == ""
    assert "there is no file" in rows[1]["error"]
    assert float(rows[0]["probability"]) >= float(rows[0]["probability_2"])


def test_eval_says_how_often_each_class_was_right(command: Command, trained: Path, photos: Path) -> None:
    done = command("eval", trained, "--data", "later", cwd=photos)
    lines = [line for line in done.stdout.splitlines() if line.startswith("class ")]
    assert [line.split()[1] for line in lines] == sorted(NAMES)
    assert all(line.endswith(" right") for line in lines)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("nowhere", "a.png"), 2, "there is no run folder and no model at `nowhere`"),
        (("plain.onnx", "a.png"), 5, "does not say how its data is to be read"),
        (("plain.onnx", "a.png", "--json", "--csv"), 2, "--json and --csv are two formats"),
        (("plain.onnx",), 2, "needs RUN|MODEL.onnx FILES..."),
    ],
)
def test_what_is_no_trained_model_is_said(
    words: tuple[str, ...], code: int, told: str, command: Command, mlp: Path, tmp_path: Path
) -> None:
    mlp.rename(tmp_path / "plain.onnx")
    done = command("predict", *words, cwd=tmp_path)
    assert done.returncode == code
    assert told in done.stderr
