"""Claims about data that a Python program holds: whatever form it has, the samples and labels are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.in_memory import dataset_of, features_of
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Dataset
from edgetrain.errors import DataError
from edgetrain.recipes import Recipe, recipe_for_model

SAMPLES = 24
X = np.random.default_rng(0).standard_normal((SAMPLES, 3)).astype(np.float32)
Y = np.arange(SAMPLES) % 3
WORDS = np.array(["cat", "dog", "eel"])[Y]


def recipe(**data: Any) -> Recipe:
    overrides = [f"data.{key}={value}" for key, value in {"validation": 0.0, **data}.items()]
    return recipe_for_model("m.onnx", overrides, needs_data=False)


def rows(dataset: Dataset) -> list[tuple[list[float], int]]:
    part = dataset.train
    return [(np.asarray(part.features[i], np.float32).tolist(), part.labels[i].item()) for i in range(len(part))]


EXPECTED = [(x.tolist(), int(y)) for x, y in zip(X, Y, strict=True)]


class Indexed:
    """As PyTorch's datasets are, without PyTorch."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return X[index], int(Y[index])


def tensors() -> Any:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    return torch.from_numpy(X), torch.from_numpy(Y)


def torch_dataset() -> Any:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    return torch.utils.data.TensorDataset(*tensors())


def loader(**settings: Any) -> Any:
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch")
    return torch.utils.data.DataLoader(torch_dataset(), batch_size=5, **settings)


def collate(items: list[Any]) -> Any:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])


def pandas_frame(**columns: Any) -> Any:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    return pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], **columns})


FORMS: Mapping[str, Callable[[], Any]] = {
    "arrays": lambda: (X, Y),
    "array and list": lambda: (X, Y.tolist()),
    "lists": lambda: (X.tolist(), Y.tolist()),
    "a list of both": lambda: [X, Y],
    "tuple of tuples": lambda: (tuple(X.tolist()), tuple(Y.tolist())),
    "floats that are classes": lambda: {"x": X, "y": Y},
    "mapping": lambda: {"x_train": X, "y_train": Y},
    "list of samples": lambda: list(zip(X, Y, strict=True)),
    "two samples": lambda: list(zip(X, Y, strict=True)),
    "generator of samples": lambda: zip(X.tolist(), Y.tolist(), strict=True),
    "batches": lambda: [(X[:20], Y[:20]), (X[20:], Y[20:])],
    "generator of batches": lambda: ((X[i : i + 4], Y[i : i + 4]) for i in range(0, SAMPLES, 4)),
    "by index": Indexed,
    "tensors": tensors,
    "torch dataset": torch_dataset,
    "torch loader": loader,
    "torch loader that collates": lambda: loader(collate_fn=collate),
    "frame and column": lambda: (pandas_frame(), pandas_frame(label=Y)["label"]),
    "frame and frame": lambda: (pandas_frame(), pandas_frame(label=Y)[["label"]]),
    "frame": lambda: pandas_frame(label=Y),
    "columns": lambda: {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": Y},
    "polars": lambda: pytest.importorskip("polars", reason="needs polars").from_pandas(pandas_frame(label=Y)),
    "lazy polars": lambda: FORMS["polars"]().lazy(),
    "pyarrow": lambda: pytest.importorskip("pyarrow", reason="needs pyarrow").Table.from_pandas(pandas_frame(label=Y)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_samples(form: str) -> None:
    assert rows(dataset_of(FORMS[form](), recipe())) == EXPECTED


@pytest.mark.parametrize("form", ["generator of samples", "torch dataset", "frame", "arrays"])
def test_every_form_is_split_as_the_recipe_says(form: str) -> None:
    found = dataset_of(FORMS[form](), recipe(validation=0.25, test=0.25, limit=12))
    assert found.validation is not None
    assert found.test is not None
    assert (len(found.train), len(found.validation), len(found.test)) == (9, 3, 6)
    assert sorted(found.validation.labels) == [0, 1, 2]


def test_a_shuffling_loader_is_not_read_whole() -> None:
    found = dataset_of(loader(shuffle=True), recipe())
    assert rows(found) == EXPECTED


@pytest.mark.parametrize("form", ["batches", "fewer", "with replacement"])
def test_a_loader_that_draws_its_own_samples_is_read_once(form: str) -> None:
    utils: Any = pytest.importorskip("torch.utils.data", reason="needs PyTorch")
    dataset = torch_dataset()
    loaders: Mapping[str, Callable[[], Any]] = {
        "batches": lambda: utils.DataLoader(dataset, batch_sampler=[[0, 1, 2], [2, 1, 0]]),
        "fewer": lambda: loader(sampler=utils.RandomSampler(dataset, num_samples=6)),
        "with replacement": lambda: loader(sampler=utils.RandomSampler(dataset, replacement=True)),
    }
    found = dataset_of(loaders[form](), recipe())
    assert len(found.train) == (SAMPLES if form == "with replacement" else 6)
    assert sorted(rows(found)) != sorted(EXPECTED)


@pytest.mark.parametrize("form", ["arrays", "list", "samples", "frame", "column"])
def test_labels_may_be_words(form: str) -> None:
    forms: Mapping[str, Callable[[], Any]] = {
        "arrays": lambda: (X, WORDS),
        "list": lambda: (X, WORDS.tolist()),
        "samples": lambda: zip(X, WORDS, strict=True),
        "frame": lambda: pandas_frame(label=WORDS),
        "column": lambda: (X, pandas_frame(label=WORDS)["label"]),
    }
    found = dataset_of(forms[form](), recipe())
    assert found.class_names == ("cat", "dog", "eel")
    assert found.train.labels.tolist() == Y.tolist()


def test_a_test_part_has_the_columns_and_classes_of_the_training_part() -> None:
    frame = pandas_frame()
    test = frame[["c", "b", "a"]].iloc[1:3]
    data = {"x_train": frame, "y_train": WORDS.tolist(), "x_test": test, "y_test": ["dog", "eel"]}
    found = dataset_of(data, recipe())
    assert found.test is not None
    assert found.test.labels.tolist() == [1, 2]
    np.testing.assert_array_equal(found.test.features[0], X[1])
    with pytest.raises(DataError, match="class `fox`"):
        dataset_of({**data, "y_test": ["dog", "fox"]}, recipe())


def test_a_frame_with_words_and_gaps_is_read_as_a_file_is() -> None:
    frame = pandas_frame(city=["Rome", None, *["Bern"] * (SAMPLES - 2)], price=Y * 1000.5)
    frame.loc[3, "a"] = None
    found = dataset_of(frame, recipe(label="price", missing="zero"))
    assert found.reading == Reading(
        columns=("a", "b", "c", "city"), fills=(0.0,) * 4, categories={"city": ("Bern", "Rome")}
    )
    assert found.train.features[3][0] == 0
    assert [found.train.features[i][3:].tolist() for i in range(3)] == [[0, 1], [0, 0], [1, 0]]
    assert found.train.labels.dtype == np.float32
    with pytest.raises(DataError, match="row 1: column `city` is empty"):
        dataset_of(frame, recipe(label="price"))
    later = frame[["city", "c", "b", "a"]].iloc[:4]
    np.testing.assert_array_equal(
        features_of(later, found.reading, recipe(missing="zero").data)[3], found.train.features[3]
    )


def test_whole_numbers_below_zero_are_values_where_the_loss_takes_values() -> None:
    values = recipe_for_model("m.onnx", ["train.loss=mse", "data.validation=0"], needs_data=False)
    assert dataset_of((X, Y - 1), values).train.labels.tolist() == (Y - 1).tolist()
    with pytest.raises(DataError, match=r"label -1") as caught:
        dataset_of((X, Y - 1), recipe())
    assert "train.loss=mse metric=mse" in caught.value.fix


def test_pictures_of_pillow_are_samples() -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    pictures = [image.new("LA", (4, 2), (9, 0)), image.new("L", (5, 2), 7)]
    found = dataset_of(zip(pictures, [0, 1], strict=True), recipe())
    assert found.train.features[0].tolist() == [[255] * 4] * 2
    assert found.train.features[1].shape == (2, 5)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_sample_without_a_label_is_named(missing: Any) -> None:
    words = [*WORDS.tolist()[:-1], missing]
    for data in ((X, words), zip(X, words, strict=True), (X, pandas_frame(label=words)["label"])):
        with pytest.raises(DataError, match=f"sample {SAMPLES - 1} has an empty label"):
            dataset_of(data, recipe())


def test_a_frame_with_two_columns_of_one_name_is_refused() -> None:
    frame = pandas_frame(label=Y)
    frame.columns = ["a", "b", "a", "label"]
    with pytest.raises(DataError, match="two columns `a`"):
        dataset_of(frame, recipe())


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (42, "`int` is not data"),
        ({"x_train": X}, "no `y_train`"),
        ([], "no training samples"),
        ([1, 2, 3], "not \\(x, y\\)"),
        ((X, Y[:3]), "24 samples and 3 labels"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "cannot be made arrays"),
        (X, "not data"),
        (({"a": X}, Y[:3]), "24 samples and 3 labels"),
    ],
)
def test_what_is_no_data_is_said(data: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        dataset_of(data, recipe())
