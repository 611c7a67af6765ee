from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.api.models import python_recipe
from edgetrain.errors import ModelError, UsageError
from edgetrain.pipeline.source import recipe_of


def test_a_model_file_gets_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(b"")
    recipe = recipe_of(str(path), ("data.source=x.npz", "train.batch=4"), needs_data=True)
    assert (recipe.name, recipe.model.source, recipe.data.source) == ("mine", str(path), "x.npz")
    assert (recipe.train.batch, recipe.train.epochs, recipe.metric) == (4, 10, "accuracy")


@pytest.mark.parametrize(
    ("overrides", "metric"),
    [
        (("train.loss=mse",), "mse"),
        (("train.loss=l1",), "mae"),
        (("train.loss=bce",), "accuracy"),
        (("train.loss=mse", "metric=mae"), "mae"),
        (('train.loss="mse"',), "mse"),
    ],
)
def test_the_metric_of_a_model_file_follows_its_loss(overrides: tuple[str, ...], metric: str) -> None:
    assert recipe_of("zoo:digits-cnn", overrides, needs_data=False).metric == metric


def test_a_model_file_without_data_is_refused_only_where_data_is_needed() -> None:
    assert recipe_of("zoo:digits-cnn", (), needs_data=False).data.source == ""
    with pytest.raises(UsageError, match="needs data"):
        recipe_of("zoo:digits-cnn", (), needs_data=True)


@pytest.mark.parametrize("name", ["gone.onnx", "folder.onnx"])
def test_a_model_file_that_is_not_there_is_a_model_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ModelError, match="no model file"):
        recipe_of(str(tmp_path / name), (), needs_data=True)


@pytest.mark.parametrize("name", ["mine", "mine.onnx.bak", "mine.pb"])
def test_a_model_file_of_any_name_is_a_model_on_the_command_line_and_in_python(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert recipe_of(str(path), (), needs_data=False).model.source == str(path)
    assert python_recipe(str(path), {}, data_source="x.npz").model.source == str(path)
