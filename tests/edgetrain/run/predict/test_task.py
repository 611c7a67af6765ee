from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgetrain.dataset.reading import Reading, Scaling
from edgetrain.errors import ModelError
from edgetrain.recipes import LOSSES, METRICS, TextSection, load_recipe
from edgetrain.run.predict.prediction import _KINDS
from edgetrain.run.predict.task import Description, InputShape, Task, task_kind

DESCRIPTION = Description(
    task=Task(kind="classes", output="logits", inputs={"image": InputShape(shape=(1, 8, 8), dtype="float32")}),
    data=load_recipe("digits", ["data.source=''", "data.format=npz", "data.mean=[0.5]", "data.label=kind"]).data,
    data_kind="npz",
    reading=Reading(class_names=("a", "ü"), target=Scaling(mean=3.0, std=2.0)),
)


def test_a_description_travels_in_a_models_properties() -> None:
    assert Description.from_metadata(DESCRIPTION.to_metadata(), where="m.onnx") == DESCRIPTION


def test_no_path_of_the_machine_travels_along() -> None:
    data = load_recipe("digits", ["data.source=/home/anna/photos", "data.text.vocabulary=/home/anna/vocab.txt"]).data
    described = Description(task=DESCRIPTION.task, data=data, data_kind="images", reading=Reading())
    assert not any("anna" in text for text in described.to_metadata().values())


def test_a_vocabulary_is_taken_from_beside_the_model(tmp_path: Path) -> None:
    text = TextSection(vocabulary="/home/anna/vocab.txt")
    described = dataclasses.replace(DESCRIPTION, data=dataclasses.replace(DESCRIPTION.data, text=text))
    found = Description.from_metadata(described.to_metadata(), where="m.onnx")
    assert found.beside(tmp_path).data.text.vocabulary == "vocab.txt"
    (tmp_path / "vocab.txt").touch()
    assert found.beside(tmp_path).data.text.vocabulary == str(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"edgetrain.format": "edgetrain.model/9"}, "has the format `edgetrain.model/9`"),
        ({"edgetrain.task": "{"}, "Expecting property name"),
        ({"edgetrain.task": "{}"}, "`kind` is missing"),
        ({"edgetrain.data": '{"source": "", "colour": 1}'}, "`data.colour` is not a known key"),
    ],
)
def test_properties_that_are_broken_are_refused(change: dict[str, str], told: str) -> None:
    with pytest.raises(ModelError) as caught:
        Description.from_metadata({**DESCRIPTION.to_metadata(), **change}, where="m.onnx")
    assert told in caught.value.why


def test_a_model_of_somebody_else_is_told_from_ours() -> None:
    with pytest.raises(ModelError, match="does not say how its data is to be read"):
        Description.from_metadata({"author": "anna"}, where="m.onnx")


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_has_outputs_that_can_be_read(loss: str) -> None:
    assert {task_kind(loss, metric) for metric in METRICS} <= _KINDS.keys()


def test_a_loss_of_the_users_own_is_read_by_its_metric() -> None:
    assert [task_kind("onnx", metric) for metric in ("accuracy", "top-5", "mse")] == ["scores", "scores", "values"]
