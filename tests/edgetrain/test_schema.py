"""Claims about reading typed tables."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.schema import close_to, read_table, setting
from edgetrain.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven:
    name: str = setting()
    watts: float = setting(1000.0, above=0, maximum=3000)
    shelves: int | None = setting(None, minimum=1)
    modes: tuple[str, ...] = setting((), choices=("grill", "fan"))
    size: tuple[int, ...] = setting((), minimum=1, length=2)
    is_gas: bool = setting(False)
    memory: Bytes = setting(Bytes(8), minimum=0)  # noqa: RUF009
    heat: str | tuple[float, ...] = setting("even", choices=("even", "top"), above=0)


def mistakes_of(**table: object) -> list[str]:
    mistakes: list[str] = []
    oven = read_table(Oven, table, where="oven.", mistakes=mistakes)
    assert (oven is None) == bool(mistakes)
    return mistakes


def test_defaults_fill_what_the_table_leaves_out() -> None:
    assert read_table(Oven, {"name": "a"}, where="", mistakes=[]) == Oven(name="a")


@pytest.mark.parametrize(("value", "expected"), [("top", "top"), ([1, 0.5], (1.0, 0.5))])
def test_a_key_may_be_a_word_or_numbers(value: object, expected: object) -> None:
    oven = read_table(Oven, {"name": "a", "heat": value}, where="", mistakes=[])
    assert oven is not None
    assert oven.heat == expected


def test_a_whole_number_is_accepted_where_a_number_is_wanted() -> None:
    oven = read_table(Oven, {"name": "a", "watts": 5}, where="", mistakes=[])
    assert oven is not None
    assert isinstance(oven.watts, float)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("watts", 0, "more than 0"),
        ("watts", 3001, "3000 or less"),
        ("watts", "hot", "a finite number"),
        ("watts", float("nan"), "a finite number"),
        ("watts", True, "a finite number"),
        ("shelves", 0, "1 or more"),
        ("shelves", 1.5, "a whole number"),
        ("shelves", True, "a whole number"),
        ("modes", "grill", "a list of texts"),
        ("modes", ["gril"], "did you mean `grill`"),
        ("size", [1], "2 values"),
        ("size", [1, 0], "1 or more"),
        ("is_gas", 1, "`true` or `false`"),
        ("memory", -1, "0 or more"),
        ("heat", "bottom", "one of `even`, `top`"),
        ("heat", [1, 0], "more than 0"),
        ("heat", [1, "top"], "a word or a list of numbers"),
        ("heat", 3, "a word or a list of numbers"),
        ("nmae", "x", "did you mean `oven.name`"),
    ],
)
def test_a_wrong_value_is_one_mistake_that_names_its_key(key: str, value: object, expected: str) -> None:
    (mistake,) = mistakes_of(**{"name": "a", key: value})
    assert f"`oven.{key}`" in mistake
    assert expected in mistake


def test_every_combination_of_mistakes_is_reported_whole() -> None:
    wrong: dict[str, object] = {"watts": -1, "shelves": 0, "modes": ["x"], "is_gas": 2, "extra": 1}
    for count in range(len(wrong) + 1):
        for keys in itertools.combinations(wrong, count):
            assert len(mistakes_of(name="a", **{key: wrong[key] for key in keys})) == count


@pytest.mark.parametrize("value", [None, "none"])
def test_an_optional_key_can_be_taken_back(value: object) -> None:
    oven = read_table(Oven, {"name": "a", "shelves": value}, where="", mistakes=[])
    assert oven is not None
    assert oven.shelves is None


KEYS = st.sampled_from(("name", "watts", "shelves", "modes", "size", "is_gas", "memory", "other"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@settings(deadline=None)
@given(st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3)))
def test_no_table_makes_the_reader_fail(table: dict[str, object]) -> None:
    mistakes: list[str] = []
    oven = read_table(Oven, table, where="", mistakes=mistakes)
    assert (oven is None) == bool(mistakes)


def test_an_unknown_word_far_from_all_others_gets_no_suggestion() -> None:
    assert close_to("zzzz", ("jetson", "host")) == ""


def test_numbers_that_no_kernel_can_hold_are_refused() -> None:
    assert "at most 3.4e38" in mistakes_of(name="a", watts=1e300)[0]
    assert "63 bits" in mistakes_of(name="a", shelves=10**30)[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_that_no_float_holds_is_refused(sign: int) -> None:
    (mistake,) = mistakes_of(name="a", watts=sign * 10**400)
    assert "a number of at most 3.4e38" in mistake
