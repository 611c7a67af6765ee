"""A command: its words, a line each, as the parsers of the verbs take them. Nothing is run."""

from __future__ import annotations

import argparse

from edgetrain.cli.cache import read_action
from edgetrain.cli.command import help_of, parse_arguments
from edgetrain.cli.console import Console
from edgetrain.cli.entry import VERBS, _no_such_verb
from edgetrain.cli.request import job_of, split_words
from edgetrain.recipes import load_recipe
from tests.fuzz.harness import documented

WORDS = (
    *(name.encode() + b"\n" for name in VERBS),
    *(flag.name.encode() + b"\n" for verb in VERBS.values() for flag in verb.all_flags),
    *(b"--epochs\n", b"train.batch=", b"1MB", b"50ms", b"9" * 400, b"--\n", b"-", b"=", b"\xc2\xb2", b"inf", b"nan"),
)


def one_input(data: bytes) -> None:
    words = data.decode("utf-8", "surrogateescape").split("\n")  # as Python hands over what the shell gave
    Console.of(words)
    verb = VERBS.get(words[0])
    if verb is None:
        with documented():
            raise _no_such_verb(words)
        return
    help_of(verb)
    with documented():
        arguments = parse_arguments(verb, words[1:])
        if verb.name == "cache":
            read_action(arguments)
        elif verb.name in ("fit", "plan", "check", "inspect"):
            _read_request(arguments)


def _read_request(arguments: argparse.Namespace) -> None:
    _, overrides = split_words(arguments.words)
    recipe = load_recipe("digits", overrides)
    if not getattr(arguments, "target", None):
        arguments.target = "cortex-m7"
    job_of(arguments, recipe, Console.of(["--quiet"]))
