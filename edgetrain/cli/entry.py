"""The entry point: finds the verb, runs it, and turns every error into a message and an exit code."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType

from edgetrain.cli import budget, cache, check, doctor, evaluate, export, fit, inspect, plan, recipes, targets, tune
from edgetrain.cli.command import Verb, help_of, parse_arguments, table
from edgetrain.cli.console import Console, StdoutClosedError
from edgetrain.cli.failure import EXIT_CODES, as_edgetrain_error
from edgetrain.errors import UsageError
from edgetrain.schema import close_to

VERBS: Mapping[str, Verb] = {
    module.VERB.name: module.VERB
    for module in (fit, budget, plan, tune, check, inspect, evaluate, export, cache, recipes, targets, doctor)
}
_EXAMPLES = (
    "edgetrain fit digits --budget 1MB",
    "edgetrain plan digits --target cortex-m7",
    "edgetrain fit --help",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Never raises, save for what ends the interpreter itself."""
    words = list(sys.argv[1:] if argv is None else argv)
    console = Console.of(words)
    try:
        _prepare(console)
        return _dispatch(words, console)
    except StdoutClosedError:
        # The interpreter flushes standard output once more at its end: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as cause:
        error = as_edgetrain_error(cause)
        console.fail(error, cause)
        return error.exit_code


def _prepare(console: Console) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without `µ` shows `?`, and the run goes on
    level = logging.INFO if console.verbose else logging.WARNING
    logging.basicConfig(stream=console.talk, level=level, format="%(levelname)s: %(message)s", force=True)
    for number, name in ((logging.INFO, "info"), (logging.WARNING, "warning"), (logging.ERROR, "error")):
        logging.addLevelName(number, name)
    if threading.current_thread() is threading.main_thread():
        # As Ctrl-C: what was begun is undone, and the compiler's process does not stay behind.
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _dispatch(words: Sequence[str], console: Console) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        console.data(top_help())
        return 0 if words else UsageError.exit_code
    if words[0] in ("-V", "--version"):
        from edgetrain import __version__

        console.data(f"edgetrain {__version__}\n")
        return 0
    verb = VERBS.get(words[0])
    if verb is None:
        raise UsageError(
            f"there is no verb `{words[0]}`{close_to(words[0], VERBS)}",
            why=f"the verbs are {', '.join(VERBS)}",
            fix="see `edgetrain --help`",
        )
    if "-h" in words or "--help" in words:
        console.data(help_of(verb))
        return 0
    return verb.run(parse_arguments(verb, words[1:]), console)


def top_help() -> str:
    """The first screen: what it is, the verbs, the exit codes, and commands to paste."""
    codes = [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    return "\n\n".join(
        (
            "edgetrain fine-tunes an ONNX model on the device that holds the data, inside a memory budget.",
            "usage: edgetrain VERB [arguments] [options]",
            "verbs:\n" + table([(verb.name, verb.summary) for verb in VERBS.values()]),
            "exit codes:\n" + table(codes),
            "examples:\n" + "\n".join(f"  {example}" for example in _EXAMPLES) + "\n",
        )
    )
