"""The entry point: finds the verb, runs it, and turns every error into a message and an exit code."""

from __future__ import annotations

import io
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType

from edgetrain.cli import (
    budget,
    cache,
    check,
    compare,
    completion,
    doctor,
    evaluate,
    export,
    fit,
    import_weights,
    inspect,
    plan,
    predict,
    recipes,
    report,
    targets,
    tune,
)
from edgetrain.cli.command import Verb, help_of, parse_arguments, table
from edgetrain.cli.console import Console, LogLines, StdoutClosedError
from edgetrain.cli.failure import EXIT_CODES, as_edgetrain_error
from edgetrain.cli.other_words import meant_verb
from edgetrain.errors import DeviceError, UsageError
from edgetrain.free_memory import address_space_bytes
from edgetrain.locate import is_completing
from edgetrain.schema import close_to

VERBS: Mapping[str, Verb] = {
    module.VERB.name: module.VERB
    for module in (
        fit,
        budget,
        plan,
        tune,
        check,
        inspect,
        evaluate,
        predict,
        report,
        compare,
        export,
        import_weights,
        cache,
        recipes,
        targets,
        doctor,
        completion,
    )
}
_LEAST_ADDRESSES = 200_000_000  # measured with `ulimit -v`: with 150 MB, NumPy loads and nothing else does
_TOO_FEW_ADDRESSES = (
    b"error: edgetrain needs 200 MB of addresses or more, and the limit of this shell is below that\n\n"
    b"hint: raise it: `ulimit -v unlimited`\n"
)
_OUT_OF_MEMORY = b"error: this machine is out of memory\n\nhint: close other programs\n"
_EXAMPLES = (
    "edgetrain fit digits --budget 1MB",
    "edgetrain plan digits --target cortex-m7",
    "edgetrain fit --help",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Never raises, save for what ends the interpreter itself.

    Without `argv` it is this process's command: signals that come when it has its exit code do not change that.
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv), is_process=argv is None)
    finally:
        if argv is None:
            _ignore_signals()


def _run(words: Sequence[str], *, is_process: bool) -> int:
    if not _has_addresses():
        os.write(sys.stderr.fileno(), _TOO_FEW_ADDRESSES)
        return DeviceError.exit_code
    if is_process and is_completing():
        completion.complete(VERBS)
    console = Console.of(words)
    try:
        _prepare(console)
        return _dispatch(words, console)
    except StdoutClosedError:
        # The interpreter flushes standard output once more at its end: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as cause:
        try:
            error = as_edgetrain_error(cause)
            console.fail(error, cause)
        except (MemoryError, ImportError):
            os.write(sys.stderr.fileno(), _OUT_OF_MEMORY)
            return DeviceError.exit_code
        return error.exit_code


def _has_addresses() -> bool:
    """With fewer, NumPy's own libraries end the process with words of their own."""
    limit = address_space_bytes()
    return limit is None or limit >= _LEAST_ADDRESSES


def _prepare(console: Console) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without `µ` shows `?`, and the run goes on
    level = logging.INFO if console.verbose else logging.WARNING
    logging.basicConfig(handlers=[LogLines(console)], level=level, format="%(levelname)s: %(message)s", force=True)
    for number, name in ((logging.INFO, "info"), (logging.WARNING, "warning"), (logging.ERROR, "error")):
        logging.addLevelName(number, name)
    if threading.current_thread() is threading.main_thread():
        # As Ctrl-C: what was begun is undone, and the compiler's process does not stay behind.
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` leaves it
            signal.signal(signal.SIGHUP, _interrupt)


def _ignore_signals() -> None:
    """The interpreter puts back the default for each signal while it ends, and that would kill what has succeeded."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _dispatch(words: Sequence[str], console: Console) -> int:
    if words[:1] == ["help"] and words[1:2] and words[1] in VERBS:
        console.data(help_of(VERBS[words[1]]))
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        console.data(top_help())
        return 0 if words else UsageError.exit_code
    if words[0] in ("-V", "--version", "version"):
        from edgetrain import __version__

        console.data(f"edgetrain {__version__}\n")
        return 0
    verb = VERBS.get(words[0])
    if verb is None:
        raise _no_such_verb(words)
    if "-h" in words or "--help" in words:
        console.data(help_of(verb))
        return 0
    return verb.run(parse_arguments(verb, words[1:]), console)


def _no_such_verb(words: Sequence[str]) -> UsageError:
    name, *rest = words
    meant = meant_verb(name, VERBS)
    if meant is None:
        why = f"the verbs are {', '.join(VERBS)}"
        return UsageError(f"there is no verb `{name}`{close_to(name, VERBS)}", why=why, fix="see `edgetrain --help`")
    try:
        parse_arguments(VERBS[meant], rest)
    except UsageError:  # what follows was meant for another tool: only the verb carries over
        rest = []
    command = shlex.join(("edgetrain", meant, *rest))
    return UsageError(
        f"there is no verb `{name}`; did you mean `edgetrain {meant}`?",
        why=f"`edgetrain {meant}`: {VERBS[meant].summary}",
        fix=f"run `{command}`" if rest or VERBS[meant].least_words == 0 else f"like `{VERBS[meant].examples[0]}`",
    )


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
