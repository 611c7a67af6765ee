"""Whether a hint works when it is pasted: its commands parse with the real parser, its keys and flags exist.

Every error that a test makes is checked (see `conftest.py`), and every hint in the source (`edgetrain/test_hints.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from edgetrain.cli.cache import read_action
from edgetrain.cli.command import Verb, parse_arguments
from edgetrain.cli.entry import VERBS
from edgetrain.errors import UsageError, pasteable
from edgetrain.recipes import load_recipe

# Words in capitals stand for what only the reader knows; a parser wants something of the kind.
_EXAMPLES: Mapping[str, str] = {"SIZE": "1MB"}
_OVERRIDE = re.compile(r"[A-Za-z_][\w.\-]*=")
_SECTIONS = "(?:model|data|train|update)"
_SETTING_IN_PROSE = re.compile(rf"\b{_SECTIONS}\.[a-z_.]+ = ")
_KEY = re.compile(rf"(?<![\w/.-]){_SECTIONS}(?:\.[a-z_]+)+")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_QUOTED = re.compile(r"`[^`]*`")
_FILES = (".onnx", ".npz", ".csv", ".toml", ".c", ".bin", ".html", ".py", ".json")
_WRONG_IN_A_RECIPE = ("is not a known key", ", expected", "is not an override", "is a value, not a table")


def problems(fix: str) -> list[str]:
    """A sentence for each thing in the fix that would fail."""
    found = [problem for text in pasteable(fix) for problem in _problems_of(text)]
    found += [f"`{text}` cannot be pasted: write `key=value`" for text in _SETTING_IN_PROSE.findall(fix)]
    # Flags of other programs stand in commands of theirs.
    ours = _QUOTED.sub(lambda quoted: quoted.group() if pasteable(quoted.group()) else "", fix).partition(
        "pip install"
    )[0]
    prose = _QUOTED.sub("", fix)
    known = {flag.name for verb in VERBS.values() for flag in verb.all_flags}
    found += [f"no verb has the flag `{flag}`" for flag in _FLAG.findall(ours) if flag not in known]
    named = [key for key in _KEY.findall(prose) if not key.endswith(_FILES)]
    return found + [f"`{key}` is no key of a recipe" for key in named if not _is_key(key)]


def _problems_of(text: str) -> Iterator[str]:
    try:
        words = [_EXAMPLES.get(word, word) for word in shlex.split(text)]
    except ValueError as error:
        yield f"`{text}` is no shell command: {error}"
        return
    if words[0] != "edgetrain":
        yield from _problems_of_addition(text, words)
        return
    if words[1:] in ([], ["--help"]):
        return
    verb = VERBS.get(words[1]) if len(words) > 1 else None
    if verb is None:
        yield f"`{text}`: there is no verb `{words[1]}`"
        return
    yield from _problems_of_command(text, verb, words[2:])


def _problems_of_command(text: str, verb: Verb, words: Sequence[str]) -> Iterator[str]:
    if words == ["--help"]:
        return
    try:
        arguments = parse_arguments(verb, words)
        if verb.name == "cache":
            read_action(arguments)
    except UsageError as error:
        yield f"`{text}`: {error.what}"
        return
    yield from _problems_of_overrides(text, [word for word in arguments.words if _OVERRIDE.match(word)])


def _problems_of_addition(text: str, words: Sequence[str]) -> Iterator[str]:
    """What is added to a command: it must fit one verb, with words of its own where the verb wants some."""
    errors = []
    for verb in VERBS.values():
        try:
            arguments = parse_arguments(verb, [*["word"] * verb.least_words, *words])
        except UsageError as error:
            errors.append(error.what)
        else:
            yield from _problems_of_overrides(text, [word for word in arguments.words if _OVERRIDE.match(word)])
            return
    yield f"`{text}` fits no verb: {errors[0]}"


def _problems_of_overrides(text: str, overrides: Sequence[str]) -> Iterator[str]:
    """Keys and types; whether values make sense together depends on the rest of the recipe."""
    try:
        load_recipe("digits", overrides)
    except UsageError as error:
        for line in error.what.splitlines()[1:]:
            if any(wrong in line for wrong in _WRONG_IN_A_RECIPE):
                yield f"`{text}`: {line.strip(' -')}"


def _is_key(key: str) -> bool:
    try:
        load_recipe("digits", [f"{key}=0"])
    except UsageError as error:
        return "is not a known key" not in error.what
    return True
