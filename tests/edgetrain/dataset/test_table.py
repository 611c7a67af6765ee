"""Claims about a table's rows as numbers: what was written comes back, and what is broken is named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.table import MOST_WORDS, Table, TableRows, TableSettings, find_label, misfit, read_rows
from edgetrain.dataset.table_fills import fill_missing
from edgetrain.errors import DataError
from edgetrain.recipes import parse_scalar


def table(text: str) -> Table:
    header, *lines = [line.split(",") for line in text.splitlines()]

    def rows() -> Iterator[tuple[str, Sequence[object]]]:
        for number, line in enumerate(lines, start=2):
            yield f"t:{number}", line

    return Table(name="t", header=tuple(header), rows=rows)


def rows_of(text: str, reading: Reading | None = None, *, with_labels: bool = True, **settings: Any) -> TableRows:
    return read_rows(table(text), TableSettings(**settings), reading=reading, with_labels=with_labels)


def test_features_come_in_the_order_of_the_columns_wherever_the_label_is() -> None:
    found = rows_of("u,label,v\n1,0,2.5\n3,1,-4e-1")
    assert np.array_equal(found.features, np.array([[1, 2.5], [3, -0.4]], np.float32))
    assert found.labels == ["0", "1"]
    assert found.reading == Reading(columns=("u", "v"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2", "no column `label`"),
        ("", "no column `label`"),
        ("a,label", "is empty"),
        ("a,label\n1,0\nx,1", r"t:3: column `a` holds `x`"),
        ("a,label\nnan,0", r"t:2: column `a` holds `nan`"),
        ("a,label\ninf,0", r"t:2: column `a` holds `inf`"),
        ("a,label\n1e39,0", r"t:2: column `a` holds `1e39`"),
        ("a,label\n1_0,0\n2,1", r"t:2: column `a` holds `1_0`"),
        ("a,label\n1", r"t:2 has 1 cells where the header has 2"),
        ("a,label\n1,dog\n2,", "t:3: sample 1 has an empty label"),
        ("a,a,label\n1,2,0", "two columns `a`"),
        ("label\n1", "no column besides the label"),
    ],
)
def test_what_is_broken_is_named_by_place_and_column(text: str, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_rows(table(text) if text else Table(name="t", header=(), rows=lambda: iter(())), TableSettings())


@pytest.mark.parametrize(
    ("header", "fix"),
    [
        (["age", "Label"], "data.label=Label"),
        (["age", "House price"], "'data.label=House price'"),
        (["age", "2020", "2021"], None),
        (["age", "2021"], """'data.label="2021"'"""),
    ],
)
def test_a_missing_label_is_answered_with_an_override_that_works(header: list[str], fix: str | None) -> None:
    with pytest.raises(DataError) as caught:
        find_label("t", header, "")
    if fix is not None:
        assert caught.value.fix.endswith(f"`{fix}`")
    (word,) = shlex.split(caught.value.fix.partition("like ")[2].strip("`"))
    label = parse_scalar(word.removeprefix("data.label="))
    assert isinstance(label, str)
    assert find_label("t", header, label) == header.index(label)


def test_a_first_line_of_numbers_is_no_header() -> None:
    with pytest.raises(DataError) as caught:
        find_label("t", ["5.1", "3.5", "0"], "")
    assert "first line holds numbers" in caught.value.why


def test_columns_can_be_left_out_and_one_without_a_name_is() -> None:
    found = rows_of(",id,a,label\n0,x7,1,0\n1,x8,2,1", ignore=("id",))
    assert found.features.tolist() == [[1], [2]]
    assert "without a name" in found.notes[0]
    with pytest.raises(DataError, match=r"no column `aa`, which `data.ignore` names \(did you mean `a`"):
        rows_of("a,b,label\n1,2,0", ignore=("aa",))


def test_a_column_of_words_is_one_input_for_each_word() -> None:
    found = rows_of("a,city,label\n1,Rome,0\n2,Bern,1\n3,Rome,0")
    assert found.features.tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 1]]
    assert found.reading.categories == {"city": ("Bern", "Rome")}
    assert "`city` holds words: it becomes 2 inputs (Bern, Rome)" in found.notes[0]


def test_numbers_among_words_are_words_whichever_comes_first() -> None:
    found = rows_of("code,label\n12,0\nA1,1\nB2,1\n12,0\nC,1")
    assert found.reading.categories == {"code": ("12", "A1", "B2", "C")}
    assert found.features.sum(axis=1).tolist() == [1] * 5


def test_a_column_of_names_is_refused_with_the_override_that_leaves_it_out() -> None:
    text = "id,name,label\n" + "\n".join(f"{i},person {i},0" for i in range(MOST_WORDS + 1))
    with pytest.raises(DataError, match="`name` holds more than 100 different words") as caught:
        rows_of(text, ignore=("id",))
    (word,) = shlex.split(caught.value.fix.partition("with ")[2].strip("`"))
    assert parse_scalar(word.removeprefix("data.ignore=")) == ["id", "name"]


def test_a_run_reads_columns_and_words_as_it_learned_them() -> None:
    learned = rows_of("a,city,label\n1,Rome,0\n2,Bern,1").reading
    found = rows_of("city,new,a\nRome,9,5", learned, with_labels=False)
    assert found.features.tolist() == [[5, 0, 1]]
    assert found.labels is None
    with pytest.raises(DataError, match="no column `a`"):
        rows_of("city\nRome", learned, with_labels=False)
    with pytest.raises(DataError, match=r"`Berne` \(did you mean `Bern`"):
        rows_of("city,a\nBerne,5", learned, with_labels=False)


GAPS = "a,city,label\n1,Rome,0\n,Bern,1\nNA,,0\n4,Rome,\n9,Rome,1"


@pytest.mark.parametrize(("policy", "fill"), [("mean", 5.0), ("median", 5.0), ("zero", 0.0)])
def test_what_stands_for_an_empty_cell_comes_from_the_training_rows(policy: str, fill: float) -> None:
    text = GAPS.replace("4,Rome,\n", "4,Rome,1\n")
    found = rows_of(text, missing=policy)
    rows = np.array([0, 1, 4])  # 1, nothing, 9
    fills = fill_missing(found.features, rows, found.reading, policy)
    assert fills == (fill, 0.0)
    assert found.features.tolist() == [[1, 0, 1], [fill, 1, 0], [fill, 0, 0], [4, 0, 1], [9, 0, 1]]
    learned = Reading(columns=found.reading.columns, categories=found.reading.categories, fills=fills)
    later = rows_of("a,city\n,Oslo\n2,", learned, with_labels=False, missing=policy)
    fill_missing(later.features, np.arange(0), learned, policy)
    assert later.features.tolist() == [[fill, 0, 0], [2, 0, 0]]


def test_rows_with_empty_cells_can_be_dropped_but_never_where_each_is_to_be_predicted() -> None:
    found = rows_of(GAPS, missing="drop")
    assert found.features.tolist() == [[1, 0, 1], [9, 0, 1]]
    assert found.labels == ["0", "1"]
    with pytest.raises(DataError, match="t:3: column `a`"):
        rows_of(GAPS, found.reading, with_labels=False, missing="drop")


def test_an_empty_cell_stops_with_the_overrides_that_help() -> None:
    for text, told in ((GAPS, "t:3: column `a` holds ``"), ("c,label\nx,0\n,1", "t:3: column `c` is empty")):
        with pytest.raises(DataError, match=told) as caught:
            rows_of(text)
        assert "data.missing=" in caught.value.fix


def test_a_column_without_a_number_in_the_training_part_cannot_be_filled() -> None:
    found = rows_of("a,b,label\n,1,0\n,2,1", missing="mean")
    with pytest.raises(DataError, match="`a` holds no number") as caught:
        fill_missing(found.features, np.arange(2), found.reading, "mean")
    assert caught.value.fix.endswith(override_hint("data.ignore", ["a"]))


def test_a_table_that_does_not_fit_the_model_is_told_column_by_column() -> None:
    reading = rows_of("a,city,label\n1,Rome,0\n2,Bern,1").reading
    error = misfit(DataError("a sample of shape [3] does not fit"), reading)
    assert error.why == "the table gives 3 numbers a row: a, city (2 words)"
    assert override_hint("data.ignore", ["a"]) in error.fix


def test_a_table_of_a_million_columns_is_refused_at_once() -> None:
    header = (*map(str, range(1_000_000)), "label")
    table = Table(name="wide", header=header, rows=lambda: iter([]))
    with pytest.raises(DataError, match="wide has 1000001 columns") as caught:
        read_rows(table, TableSettings())
    assert len(str(caught.value)) < 1000


def test_a_table_of_many_columns_is_read_and_a_message_lists_the_first() -> None:
    header = (*(f"c{i}" for i in range(20_000)), "label")
    rows = [("wide:2", [1.0] * 20_000 + [0]), ("wide:3", [2.0] * 20_000 + [1])]
    table = Table(name="wide", header=header, rows=lambda: iter(rows))
    assert read_rows(table, TableSettings()).features.shape == (2, 20_000)
    with pytest.raises(DataError, match="has no column `nothing`") as caught:
        read_rows(table, TableSettings(ignore=("nothing",)))
    assert caught.value.why.endswith("c49 and 19951 more")
