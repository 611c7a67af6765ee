"""The reference says all that the code knows: every verb, flag, key, target, exit code and public name."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Callable

import pytest

import edgetrain
from edgetrain.cli.command import Verb
from edgetrain.cli.entry import VERBS
from edgetrain.cli.failure import EXIT_CODES
from edgetrain.errors import ERRORS
from edgetrain.recipes import Recipe, load_recipe
from edgetrain.schema import setting
from edgetrain.targets.profile import list_targets
from website.hooks import WRITTEN
from website.reference import commands, exit_codes, python_interface, recipe_keys, targets
from website.reference.table import table


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_verb_has_a_section_with_each_of_its_flags(verb: Verb) -> None:
    text = section(commands.page(), verb.name)
    for flag in verb.flags:
        assert f"| `{flag.spelling}` |" in text
    for example in verb.examples:
        assert example in text


def test_every_exit_code_and_every_error_has_a_row() -> None:
    text = exit_codes.page()
    for code, meaning in EXIT_CODES.items():
        assert f"| `{code}` | {meaning} |" in text
    for name, kind in ERRORS.items():
        assert f"| `{name}` | `{kind.exit_code}` | {inspect.cleandoc(kind.__doc__ or '')} |" in text


def test_every_key_of_a_recipe_has_a_row_with_its_default() -> None:
    text = recipe_keys.page()
    digits = load_recipe("digits")
    rows = 0
    for part in (recipe_keys.Section(name="", kind=Recipe), *recipe_keys.sections(Recipe)):
        for name, _, field in recipe_keys.keys(part):
            value: object = digits
            for step in name.split("."):
                value = getattr(value, step)  # a key of the page is a key of a recipe
            (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            assert ("| required |" in row) == required
            rows += 1
    assert rows == sum(line.startswith("| `") for line in text.splitlines())


@dataclasses.dataclass
class Sample:
    behind: int = setting(3)  # steps; 0: off
    # frozen: this is above,
    # on two lines
    above: str = setting("a", choices=("a", "b"))
    long: tuple[str, ...] = setting(
        (),
        minimum=1,
    )  # behind the last line
    silent: int = 0


def test_the_meaning_of_a_key_is_the_comment_behind_it_or_above_it() -> None:
    assert recipe_keys.comments(inspect.getsource(Sample)) == {
        "behind": "Steps; 0: off",
        "above": "frozen: this is above, on two lines",
        "long": "Behind the last line",
        "silent": "",
    }


@pytest.mark.parametrize("name", list_targets())
def test_a_target_has_a_section_with_the_source_of_every_number(name: str) -> None:
    from edgetrain.locate import data_path

    text = section(targets.page(), name)
    profile = tomllib.loads(data_path("targets", f"{name}.toml").read_text(encoding="utf-8"))
    tables = [profile, *(value for value in profile.values() if isinstance(value, dict) and "value" not in value)]
    sources = [v["source"] for t in tables for v in t.values() if isinstance(v, dict) and "source" in v]
    assert sources
    assert all(f"| {source} |" in text for source in sources)


@pytest.mark.parametrize("name", edgetrain.__all__)
def test_a_public_name_has_a_section_with_its_docstring(name: str) -> None:
    text = section(python_interface.page(), name)
    value = getattr(edgetrain, name)
    first = inspect.cleandoc(value.__doc__ or "").splitlines()[0]
    assert first in text


def test_a_signature_is_written_as_in_the_source() -> None:
    def call(first: str, *, second: int | None = None, third: str = "host", **rest: object) -> str:
        return f"{first}{second}{third}{rest}"

    assert python_interface.signature("call", call) == (
        "call(\n"
        "    first: str,\n    *,\n    second: int | None = None,\n    third: str = 'host',\n    **rest: object,\n"
        ") -> str"
    )


def test_a_paragraph_on_arguments_becomes_a_list() -> None:
    def call() -> None:
        """Does it.

        `model`: a path. It is read.
        `data`: arrays, or `other`: words. `out`: a folder.
        """

    assert python_interface.docstring(call).splitlines()[2:] == [
        "- `model`: a path. It is read.",
        "- `data`: arrays, or `other`: words.",
        "- `out`: a folder.",
    ]


def test_a_bar_ends_a_cell_only_outside_of_code() -> None:
    assert table(("a",), [("`x|y` or x|y",)]).splitlines()[2] == "| `x|y` or x\\|y |"


@pytest.mark.parametrize("page", WRITTEN.values(), ids=WRITTEN)
def test_a_written_page_is_the_same_each_time(page: Callable[[], str]) -> None:
    assert page() == page()
    assert page().startswith("# ")
