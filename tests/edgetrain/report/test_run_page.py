from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from edgetrain.errors import DataError
from edgetrain.report.keep_page import keep_run_page
from edgetrain.report.page import to_html
from edgetrain.report.run_page import run_page, write_run_page
from edgetrain.report.run_record import read_run
from edgetrain.run.files.report import REPORT
from edgetrain.run.learned.learned import LEARNED
from edgetrain.run.limits.period import Period
from tests.edgetrain.report.run_folders import HOSTILE, learned_classes, learned_values, write_run


class Tags(HTMLParser):
    """Every opened tag with its attributes, and the visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._inside):
            self.text += data


def page_of(folder: Path) -> str:
    return to_html(run_page(read_run(folder)))


def test_the_verdict_comes_first_with_its_numbers(tmp_path: Path) -> None:
    text = Tags(page_of(write_run(tmp_path / "run", learned=learned_classes()))).text
    assert "The memory budget was kept: it trained in 98.3kB of 100kB." in text
    assert re.search(r"Memory, measured peak\s*98.3kB\s*98kB planned, budget 100kB", text)
    assert "of it tensors: 94.21kB measured, 95kB planned" in text
    assert "The model reaches accuracy 87.5\u00a0% on the test part of the data." in text
    assert "Epoch 3" in text
    assert str(tmp_path / "run" / "model.onnx") in text


def test_a_budget_that_was_exceeded_in_any_period_is_said(tmp_path: Path) -> None:
    periods = (
        Period(after_step=0, cause="", budget_bytes=90_000, planned_peak_bytes=89_000, measured_peak_bytes=99_000),
        Period(after_step=9, cause="user", budget_bytes=100_000, planned_peak_bytes=95_000, measured_peak_bytes=94_208),
    )
    text = Tags(page_of(write_run(tmp_path / "run", phases=periods))).text
    assert "The memory budget was exceeded" in text
    assert "99kB were measured" in text
    assert "Plans of this run" in text


def test_names_of_classes_and_files_never_become_markup(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", learned=learned_classes()))
    parsed = Tags(page)
    scripts = [attributes for tag, attributes in parsed.tags if tag == "script"]
    assert [a for a in scripts if a.get("type") != "application/json"] == [{}]  # the page's own
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert parsed.text.count(HOSTILE) >= 3  # the matrix, the table, the text of a sample
    assert HOSTILE not in page


def test_a_page_loads_nothing(tmp_path: Path) -> None:
    for _, attributes in Tags(page_of(write_run(tmp_path / "run", learned=learned_classes()))).tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))


def test_an_address_in_a_foreign_file_is_not_loaded(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", learned=learned_classes())
    found = json.loads((folder / LEARNED).read_text())
    found["hardest"][0]["picture"] = "https://example.com/x.png"
    del found["sha256"]  # or it would be found to be damaged
    (folder / LEARNED).write_text(json.dumps(found))
    assert "example.com" not in page_of(folder)


def test_samples_can_be_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", learned=learned_classes())
    page = write_run_page(folder, tmp_path / "page.html", with_samples=False).read_text(encoding="utf-8")
    assert "data:image/png" not in page
    assert "Dear" not in page
    assert "Worst mistakes" in page


def test_values_have_a_section_of_their_own(tmp_path: Path) -> None:
    text = Tags(page_of(write_run(tmp_path / "run", learned=learned_values()))).text
    assert "Predicted values" in text
    assert "Hardest samples" in text
    assert "on the validation part of the data" in text
    assert "Confusion matrix" not in text


def test_a_run_of_an_older_version_has_a_page_without_what_it_did_not_write(tmp_path: Path) -> None:
    ids = re.findall(r'<section id="(\w+)"', page_of(write_run(tmp_path / "run", with_plan=False)))
    assert ids == ["training", "provenance"]


def test_a_run_without_a_step_or_a_budget_has_a_page(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        budget_bytes=None,
        losses=(),
        validations=(),
        best_step=None,
        test={},
        seconds_per_step=None,
        process_peak_bytes=None,
    )
    assert "without a budget" in Tags(page_of(folder)).text


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", learned=learned_classes())
    assert page_of(folder) == page_of(folder)


def test_a_folder_without_a_report_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run folder"):
        read_run(tmp_path)
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(DataError, match="not finished") as caught:
        read_run(tmp_path)
    assert "--resume" in caught.value.fix


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other/1"}', '{"format": "edgetrain.report/1"}'])
def test_a_broken_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / REPORT).write_text(text)
    with pytest.raises(DataError, match=r"report\.json"):
        read_run(tmp_path)


def test_a_page_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    said: list[str] = []
    keep_run_page(tmp_path, said.append)
    assert len(said) == 1
    assert "was not written" in said[0]
    folder = write_run(tmp_path / "run")
    keep_run_page(folder, said.append)
    assert (folder / "report.html").is_file()
    assert len(said) == 1
