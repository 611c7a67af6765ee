from __future__ import annotations

import pytest

from edgetrain.cli.entry import VERBS
from edgetrain.cli.other_words import _FLAGS, _KEYS, _VERBS, meant_for_flag, meant_verb
from edgetrain.recipes import load_recipe


@pytest.mark.parametrize("word", sorted(_VERBS))
def test_a_word_of_another_tool_stands_for_a_verb_that_there_is(word: str) -> None:
    assert meant_verb(word, VERBS) in VERBS
    assert meant_verb(word.upper(), VERBS) in VERBS


def test_no_verb_of_ours_is_taken_for_another_one() -> None:
    assert {word: meant_verb(word, VERBS) for word in _VERBS.keys() & VERBS.keys()} == {
        word: word for word in _VERBS.keys() & VERBS.keys()
    }


def test_a_word_that_nobody_uses_stands_for_nothing() -> None:
    assert meant_verb("frobnicate", VERBS) is None


_VALUES = {
    "train.optimizer": "adam",
    "train.loss": "cross-entropy",
    "data.source": "bundled:digits",
    "metric": "accuracy",
    "train.learning_rate": "0.1",
    "train.momentum": "0.5",
    "train.weight_decay": "0.1",
}


@pytest.mark.parametrize("flag", sorted(_KEYS))
def test_what_is_written_instead_of_a_flag_is_a_key_of_recipes(flag: str) -> None:
    value = _VALUES.get(_KEYS[flag], "3")
    assert meant_for_flag(flag, [flag, value], (), takes_keys=True) == f"{_KEYS[flag]}={value}"
    assert meant_for_flag(f"{flag}={value}", [f"{flag}={value}"], (), takes_keys=True) == f"{_KEYS[flag]}={value}"
    load_recipe("digits", [f"{_KEYS[flag]}={value}"])


@pytest.mark.parametrize("flag", sorted(_FLAGS))
def test_what_is_written_instead_of_a_flag_is_a_flag_of_some_verb(flag: str) -> None:
    ours = {known.name for verb in VERBS.values() for known in verb.all_flags}
    meant = meant_for_flag(flag, [flag, "3"], ours, takes_keys=False)
    assert meant is not None
    assert meant.split()[0] in ours
    takes_value = {known.name: bool(known.metavar) for verb in VERBS.values() for known in verb.all_flags}
    assert (meant.split()[1:] == ["3"]) == takes_value[meant.split()[0]]


def test_no_flag_of_ours_is_taken_for_another_one() -> None:
    fit = {flag.name for flag in VERBS["fit"].all_flags}
    assert not fit & (_FLAGS.keys() | _KEYS.keys())
