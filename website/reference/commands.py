"""Every verb with its options, from the tables that the parser is made from."""

from __future__ import annotations

from edgetrain.cli.command import COMMON_FLAGS, Flag, Verb
from edgetrain.cli.entry import VERBS
from website.reference.table import code, table

_INTRODUCTION = """\
# Commands

Every command of this version with its options, written from the code. What they do together, with examples, is on the
page [command line](../cli.md).
"""


def page() -> str:
    """The overview, a section for each verb in the order of `edgetrain --help`, and the options of all."""
    overview = table(
        ("command", "what it does"), ((f"[`{verb.name}`](#{verb.name})", verb.summary) for verb in VERBS.values())
    )
    common = "## Options of every command\n\n" + _flags(COMMON_FLAGS)
    return "\n".join((_INTRODUCTION, overview, *map(_section, VERBS.values()), common))


def _section(verb: Verb) -> str:
    usage = " ".join(part for part in ("edgetrain", verb.name, verb.words, "[options]") if part)
    examples = "\n".join(verb.examples)
    parts = [f"## {verb.name}", f"```text\n{usage}\n```", _escaped(verb.description)]
    if verb.flags:
        parts.append(_flags(verb.flags))
    parts.append(f"```sh\n{examples}\n```")
    return "\n\n".join(parts) + "\n"


def _flags(flags: tuple[Flag, ...]) -> str:
    return table(("option", "meaning"), ((code(flag.spelling), _escaped(flag.help)) for flag in flags))


def _escaped(text: str) -> str:
    """Help is plain text: what Markdown or HTML would read as a mark is a letter."""
    return "`".join(
        part if index % 2 else part.replace("*", "\\*").replace("<", "&lt;").replace("_", "\\_")
        for index, part in enumerate(text.split("`"))
    )
