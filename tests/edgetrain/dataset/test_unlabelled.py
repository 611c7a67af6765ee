from __future__ import annotations

import dataclasses
import gzip
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.unlabelled import data_kind, unlabelled, unlabelled_rows
from edgetrain.errors import DataError
from edgetrain.recipes import DataSection, SeriesSection, TextSection

DATA = DataSection(source="gone", format="auto")


def loaded(*paths: Path, reading: Reading | None = None, **settings: Any) -> dict[str, Any]:
    """The samples by name, or the error in its place."""
    found: dict[str, Any] = {}
    data = dataclasses.replace(DATA, **settings)
    for item in unlabelled(paths, data, reading or Reading()):
        try:
            found[item.name] = item.load()
        except DataError as error:
            found[item.name] = error
    return found


def write_wav(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(np.arange(8000, dtype="<i2").tobytes())


def test_every_file_of_a_folder_comes_by_name_at_any_depth_and_hidden_ones_do_not(tmp_path: Path) -> None:
    for name in ("b.png", "a/2.jpg", "a/1.png", ".cache/3.png", "notes.txt", "._b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / name, format="PNG")
    assert list(loaded(tmp_path)) == [str(tmp_path / name) for name in ("a/1.png", "a/2.jpg", "b.png")]


def test_paths_keep_their_order(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / name)
    names = [str(tmp_path / name) for name in ("b.png", "a.png", "b.png")]
    assert [item.name for item in unlabelled([Path(n) for n in names], DATA, Reading())] == names


def test_a_run_on_texts_reads_the_texts_of_a_folder_with_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "a.png")
    assert list(loaded(tmp_path, format="text")) == [str(tmp_path / "a.txt")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_table_is_read_with_and_without_its_label(delimiter: str, start: str, tmp_path: Path) -> None:
    for name, header, rows in (
        ("with.csv", ("a", "kind", "b"), (("1", "x", "2"), ("3", "y", "4"))),
        ("without.csv", ("a", "b"), (("1", "2"), ("3", "4"))),
    ):
        lines = (delimiter.join(row) for row in (header, *rows))
        (tmp_path / name).write_text(start + "\n".join(lines) + "\n", encoding="utf-8")
        found = loaded(tmp_path / name, label="kind")
        assert list(found) == [f"{tmp_path / name}:{line}" for line in (2, 3)]
        np.testing.assert_array_equal(list(found.values()), [[1, 2], [3, 4]])


def test_columns_are_found_by_their_names_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("extra,b,a\n9,2,1\n")
    reading = Reading(columns=("a", "b"), fills=(0.5, 0.0))
    np.testing.assert_array_equal(list(loaded(tmp_path / "t.csv", reading=reading).values()), [[1, 2]])
    (tmp_path / "t.csv").write_text("b,a\n2,NA\n")
    np.testing.assert_array_equal(list(loaded(tmp_path / "t.csv", reading=reading).values()), [[0.5, 2]])
    (tmp_path / "t.csv").write_text("b\n2\n")
    (error,) = loaded(tmp_path / "t.csv", reading=reading).values()
    assert "has no column `a`" in str(error)


def test_a_row_that_is_broken_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n1,two\n1\n3,4\n")
    found = list(loaded(tmp_path / "t.csv").values())
    assert "t.csv:3: column `b` holds `two`" in str(found[1])
    assert "t.csv:4 has 1 cells" in str(found[2])
    np.testing.assert_array_equal(found[3], [3, 4])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_rows_of_a_frame_are_read_as_those_of_a_file(library: str) -> None:
    frames = pytest.importorskip(library, reason=f"needs {library}")
    reading = Reading(columns=("a", "b"))
    items = unlabelled_rows(frames.DataFrame({"b": [2.0, 4.0], "extra": ["x", "y"], "a": [1.0, None]}), DATA, reading)
    assert [item.name for item in items] == ["0", "1"]
    np.testing.assert_array_equal(items[0].load(), np.array([1, 2], np.float32))
    with pytest.raises(DataError, match="row 1: column `a`"):
        items[1].load()


def test_features_of_an_npz_need_no_labels(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "d.npz", x=x)
    found = loaded(tmp_path / "d.npz")
    assert list(found) == [f"{tmp_path / 'd.npz'}[{i}]" for i in range(3)]
    np.testing.assert_array_equal(list(found.values()), x)
    named: dict[str, Any] = {"x.ids": x, "x.mask": x + 1}
    np.savez(tmp_path / "d.npz", **named)
    np.testing.assert_array_equal(loaded(tmp_path / "d.npz")[f"{tmp_path / 'd.npz'}[2]"]["mask"], [5, 6])
    np.savez(tmp_path / "d.npz", z=x)
    assert "has no `x`" in str(next(iter(loaded(tmp_path / "d.npz").values())))


def test_sounds_texts_bytes_and_mails_are_read_as_in_training(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world"]))
    text = TextSection(vocabulary=str(vocabulary), length=5)
    for name in ("one", "two"):
        (tmp_path / "data" / name).mkdir(parents=True)
        write_wav(tmp_path / "data" / name / "a.wav")
        (tmp_path / "data" / name / "b.txt").write_text("Subject: hello\n\nworld")
    for kind in ("wav", "text", "mails", "bytes"):
        settings: dict[str, Any] = {"format": kind, "text": text}
        data = dataclasses.replace(DATA, source=str(tmp_path / "data"), validation=0.0, **settings)
        trained_on = load_dataset(data).train.features[0]
        file = tmp_path / "data" / "one" / ("a.wav" if kind in ("wav", "bytes") else "b.txt")
        found = loaded(file, **settings)
        np.testing.assert_equal(found[str(file)], trained_on)


def test_lines_of_jsonl_are_samples_and_a_broken_one_is_named(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello"]))
    lines = [json.dumps({"text": "hello"}), "", "{", json.dumps({"label": "spam"})]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    found = loaded(tmp_path / "t.jsonl", text=TextSection(vocabulary=str(vocabulary), length=4))
    assert list(found) == [f"{tmp_path / 't.jsonl'}:{line}" for line in (1, 3, 4)]
    first, second, third = found.values()
    np.testing.assert_array_equal(first["input_ids"], [2, 4, 3, 0])
    assert "is not JSON" in str(second)
    assert "has no `text`" in str(third)


def test_recordings_without_a_label_become_windows(tmp_path: Path) -> None:
    rows = "".join(f"{name},{i},{10 * i}\n" for name in ("r1", "r2") for i in range(5))
    (tmp_path / "s.csv").write_text("series,x,y\n" + rows)
    found = loaded(tmp_path / "s.csv", format="series", series=SeriesSection(window=4, hop=1))
    assert list(found) == [f"{tmp_path / 's.csv'}:{name}[{start}]" for name in ("r1", "r2") for start in (0, 1)]
    np.testing.assert_array_equal(list(found.values())[1], [[1, 2, 3, 4], [10, 20, 30, 40]])


def test_an_idx_file_is_read_where_the_run_was_trained_on_idx(tmp_path: Path) -> None:
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in images.shape)
    with gzip.open(tmp_path / "new-images-idx3-ubyte.gz", "wb") as file:
        file.write(header + images.tobytes())
    found = loaded(tmp_path / "new-images-idx3-ubyte.gz", format="idx")
    np.testing.assert_array_equal(list(found.values()), images)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("missing.png", None, "there is no file"),
        ("data.xyz", b"?", "is unknown"),
        ("broken.npz", b"?", "cannot be read as .npz"),
        ("empty.csv", b"", "is empty"),
        ("folder", None, "holds no file that can be predicted"),
    ],
)
def test_what_cannot_be_opened_is_an_item_that_says_so(
    name: str, content: bytes | None, told: str, tmp_path: Path
) -> None:
    if name == "folder":
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    ((found, error),) = loaded(tmp_path / name).items()
    assert found == str(tmp_path / name)
    assert told in str(error)


def test_the_kind_of_data_is_that_of_its_source_while_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,label\n1,2\n")
    assert data_kind(dataclasses.replace(DATA, source=str(tmp_path / "d.csv"))) == "csv"
    assert data_kind(dataclasses.replace(DATA, source=str(tmp_path / "gone.csv"))) == "auto"
    assert data_kind(dataclasses.replace(DATA, format="wav")) == "wav"
