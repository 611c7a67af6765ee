"""What the README and the documentation promise exists: verbs, flags, recipe keys, files, exit codes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import edgetrain
from edgetrain.cli.cache import read_action
from edgetrain.cli.entry import VERBS
from edgetrain.cli.failure import EXIT_CODES
from edgetrain.recipes import list_recipes, load_recipe
from edgetrain.targets.profile import list_targets, load_target
from edgetrain.units import parse_bytes

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
README = ROOT / "README.md"

_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_RUNS = "runs/"


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def commands(page: Path) -> Iterator[tuple[str, ...]]:
    """The words after `edgetrain` of every command in the page's shell blocks."""
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            for part in re.split(r"&&|;", line):
                words = shlex.split(part, comments=True)
                if words[:1] == ["edgetrain"]:
                    yield tuple(words[1 : words.index(">") if ">" in words else None])


def in_pages() -> list[tuple[str, ...]]:
    return sorted({command for page in PAGES for command in commands(page)})


def test_the_readme_begins_with_one_line_to_run_and_one_line_to_test() -> None:
    first, second, *_ = blocks(README, "sh")
    assert first == "pip install . && edgetrain fit\n"
    assert second == "pip install -e '.[test]' && pytest\n"


def test_the_pages_hold_commands_of_every_verb_that_works_on_a_model_or_run() -> None:
    verbs = {command[0] for command in in_pages()}
    assert {"fit", "plan", "check", "inspect", "export", "doctor"} <= verbs


@pytest.mark.parametrize("command", in_pages(), ids=" ".join)
def test_a_command_in_the_pages_parses_with_the_verbs_own_flags(command: tuple[str, ...]) -> None:
    from edgetrain.cli.command import parse_arguments

    verb = VERBS[command[0]]
    arguments = parse_arguments(verb, command[1:])
    if getattr(arguments, "target", None) is not None:
        assert load_target(arguments.target).name in list_targets()
    if verb.name == "cache":
        read_action(arguments)
        return
    names = [word for word in arguments.words if "=" not in word]
    overrides = [word for word in arguments.words if "=" in word]
    if verb.name == "budget" and len(names) == 2:
        assert parse_bytes(names.pop()) > 0
    if verb.name == "recipes" and names[0] in ("copy", "validate"):
        del names[0]
    for name in names:
        known = (*list_recipes(), *list_targets(), "calibrate", "model.onnx", "mine.toml", "photo.png", "trained.bin")
        is_known = name in known or name.startswith((_RUNS, "photos/")) or name in ("houses.csv", "bash")
        assert is_known, f"nothing is called `{name}`"
    if overrides:
        # A model of one's own starts from the defaults; any recipe knows the same keys.
        load_recipe(names[0] if names and names[0] in list_recipes() else "digits", overrides)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_repository_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:edgetrain|tuner|tests|benchmarks|targets|recipes|docs)/[\w./-]*)`", page.read_text("utf-8")
    )
    placeholders = ("NAME", "READER")
    missing = [path for path in named if not any(p in path for p in placeholders) and not (ROOT / path).exists()]
    assert not missing


def walk_of_a_batch() -> list[tuple[str, str]]:
    """The file and the function of each call that the page on architecture lists."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\d+\. `(edgetrain/[\w/]+\.py)`: `(\w+)`", text, re.MULTILINE)


@pytest.mark.parametrize(("path", "name"), walk_of_a_batch())
def test_every_call_on_the_walk_of_a_batch_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def test_the_walk_of_a_batch_is_as_short_as_the_page_says() -> None:
    packages = [path.split("/")[1] for path, _ in walk_of_a_batch()]
    changes = sum(one != other for one, other in pairwise(packages))
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"That is {len(packages)} calls, and the package changes {changes} times." in text


@pytest.mark.parametrize(
    "folder",
    sorted(p for p in (*ROOT.iterdir(), *(ROOT / "edgetrain").iterdir()) if p.is_dir() and p.name[0] not in "._"),
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_every_folder_says_what_belongs_there(folder: Path) -> None:
    pages = [folder / "README.md", folder / "__init__.py"]
    if folder.name in ("edgetrain", "node_modules", "build", "dist", "runs"):
        return  # the product itself, and what is not ours
    texts = [page.read_text(encoding="utf-8") for page in pages if page.exists()]
    assert any(len(text.split()) > 20 for text in texts), "write a paragraph on what belongs there and what does not"


def test_the_cli_page_lists_every_verb_and_every_flag() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    for verb in VERBS.values():
        assert re.search(rf"\| `{verb.name}\b", rows), f"`{verb.name}` is not in the table of verbs"
        for flag in verb.all_flags:
            row = next((line for line in rows.splitlines() if re.search(rf"`{flag.name}\b", line)), None)
            assert row is not None, f"`{flag.name}` is not in the table of options"
            users = row.split("|")[2]
            assert "all" in users or re.search(rf"\b{verb.name}\b", users), f"{flag.name}: {verb.name} is missing"


def test_the_cli_page_lists_no_flag_that_does_not_exist() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    known = {flag.name for verb in VERBS.values() for flag in verb.all_flags} | {"--version"}
    assert set(re.findall(r"`(--[a-z][a-z0-9-]*)", text)) <= known


def test_the_cli_page_lists_the_exit_codes() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(EXIT_CODES)


@pytest.mark.parametrize(("page", "names"), [("targets", list_targets()), ("recipes", list_recipes())])
def test_the_page_has_a_row_for_each_shipped_profile(page: str, names: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    first_table = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)[: len(names)]
    assert sorted(first_table) == sorted(names)


def test_the_recipe_page_lists_every_key() -> None:
    from edgetrain.recipes import (
        AugmentSection,
        DataSection,
        ModelSection,
        SecuritySection,
        TrainSection,
        UpdateSection,
    )

    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    sections: Mapping[str, Any] = {
        "model": ModelSection,
        "data": DataSection,
        "train": TrainSection,
        "update": UpdateSection,
        "security": SecuritySection,
    }
    known = {f"{name}.{field.name}" for name, section in sections.items() for field in dataclasses.fields(section)}
    known |= {"metric", "expect"}
    table = text[text.index("| key |") : text.index("## Data formats")]
    cells = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    listed = {key for cell in cells for key in re.findall(r"`([\w.]+)`", cell)}
    assert listed == known
    section = text[text.index("## Augmentation") : text.index("## Class weights")]
    augmentations = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert augmentations == [field.name for field in dataclasses.fields(AugmentSection)]


def test_the_recipe_in_the_page_loads(tmp_path: Path) -> None:
    whole, augmentation = blocks(ROOT / "docs" / "recipes.md", "toml")
    (tmp_path / "mine.toml").write_text(f"{whole}\n{augmentation}", encoding="utf-8")
    recipe = load_recipe(tmp_path / "mine.toml")
    assert recipe.data.augment.flip == "horizontal"
    assert recipe.update.mode == "head"
    assert recipe.model.source == str(tmp_path / "model.onnx")


def test_the_python_example_calls_the_api_with_arguments_it_has() -> None:
    from edgetrain.api import override_texts

    (text,) = blocks(README, "python")
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    called = {
        call.func.attr: call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "edgetrain"
    }
    assert set(called) == {"fit"}
    fit = called["fit"]
    keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in fit.keywords if keyword.arg}
    own = set(inspect.signature(edgetrain.fit).parameters)
    overrides = override_texts({name: value for name, value in keywords.items() if name not in own})
    load_recipe(ast.literal_eval(fit.args[0]), overrides)
    assert parse_bytes(keywords["budget"]) > 0


@pytest.mark.compile
def test_the_python_example_runs(cache_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks(README, "python")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(text, "README.md", "exec"), names)
    assert isinstance(names["run"], edgetrain.Run)
    assert names["run"].report.is_within_budget
    assert names["run"].model_path.is_file()
