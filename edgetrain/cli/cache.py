"""`edgetrain cache`: the schedules that were found for kernels, looked at, kept in order and shared."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgetrain.cli.command import Flag, Verb, to_path
from edgetrain.cli.console import Console
from edgetrain.errors import UsageError
from edgetrain.schema import close_to

_COMMON = ("json", "verbose", "quiet", "help", "store")
_TRUST = ("trusted_keys", "require_signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that the verb does: the word it takes, in brackets where it can do without, and its own flags.

    A word that ends in dots may be several.
    """

    word: str = ""
    flags: tuple[str, ...] = ()


ACTIONS: Mapping[str, Action] = {
    "ls": Action(word="[WORD]", flags=("level",)),
    "show": Action(word="ID"),
    "stats": Action(),
    "verify": Action(word="[key=value ...]", flags=("run", "model", *_TRUST)),
    "gc": Action(flags=("keep_best", "drop_failed", "rules")),
    "clean": Action(flags=("all", "dry_run")),
    "export": Action(word="FILE", flags=("level",)),
    "import": Action(word="FILE", flags=_TRUST),
    "push": Action(word="URL", flags=("token_file", "sign", "all")),
    "pull": Action(word="[URL]", flags=("token_file", "forget", *_TRUST)),
    "serve": Action(flags=("token_file", "read_only", "host", "port", *_TRUST)),
}


def run(arguments: argparse.Namespace, console: Console) -> int:
    name, word = read_action(arguments)
    # Only now: SQLite and the network are not needed for a help text.
    from edgetrain.cli import cache_clean, cache_local, cache_sharing

    actions: Mapping[str, Callable[[argparse.Namespace, str, Console], int]] = {
        "ls": cache_local.ls,
        "show": cache_local.show,
        "stats": cache_local.stats,
        "verify": cache_local.verify,
        "gc": cache_local.gc,
        "clean": cache_clean.clean,
        "export": cache_local.export,
        "import": cache_local.import_,
        "push": cache_sharing.push,
        "pull": cache_sharing.pull,
        "serve": cache_sharing.serve,
    }
    return actions[name](arguments, word, console)


def read_action(arguments: argparse.Namespace) -> tuple[str, str]:
    """What to do and the word for it. Raises `UsageError` for an action, a word or a flag that there is not."""
    name, *words = arguments.words
    action = ACTIONS.get(name)
    if action is None:
        raise UsageError(
            f"`edgetrain cache` cannot `{name}`{close_to(name, ACTIONS)}", fix=f"it can {', '.join(ACTIONS)}"
        )
    if action.word and not action.word.startswith("[") and not words:
        raise UsageError(f"`edgetrain cache {name}` needs {action.word}", fix="see `edgetrain cache --help`")
    too_many = words[1:] if action.word else words
    if too_many and "..." not in action.word:
        raise UsageError(f"`edgetrain cache {name}` does not know what to do with `{too_many[0]}`")
    for key, value in vars(arguments).items():
        is_given = value is not None and value is not False
        if is_given and key not in ("words", *_COMMON, *action.flags):
            raise UsageError(
                f"`edgetrain cache {name}` has no flag `--{key.replace('_', '-')}`", fix="see `edgetrain cache --help`"
            )
    return name, words[0] if words else ""


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise UsageError(f"`{text}` is no count", fix="give a whole number from 1")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"`{text}` is no port", fix="give a number up to 65535; 0 takes a free one")
    return int(text)


def _level(text: str) -> str:
    levels = ("user", "imported", "team", "seed", "all")
    if text not in levels:
        raise UsageError(f"`{text}` is no level{close_to(text, levels)}", fix=f"the levels are {', '.join(levels)}")
    return text


VERB = Verb(
    name="cache",
    summary="look at, clean up and share what was compiled and found for kernels",
    description=(
        "The cache has four levels: schedules that were found here, that you imported, that you pulled from teams, and "
        "that ship with edgetrain. An entry holds numbers and names that are checked when it is read, and no code.\n\n"
        "`ls [WORD]` lists entries, `show ID` shows one, `stats` counts them, `verify` checks every entry, `gc` "
        "cleans up your own and the imported ones. `clean` removes compiled kernels and programs, which are made "
        "again when they are needed, and with --all the schedules too; runs are never touched. `verify --run "
        "[key=value ...]` also runs the entries for a model's kernels on this machine. `export FILE` and `import "
        "FILE` write and read JSON lines; `export -` prints them. `push URL` sends your entries to a remote. `pull "
        "URL` fetches entries from a remote and remembers it; `pull` alone fetches from all remembered remotes. "
        "`serve` makes a remote of a store that is apart from your own.\n\n"
        "URL is a folder, http://HOST or https://HOST of an `edgetrain cache serve`, s3+https://HOST/BUCKET/PREFIX "
        "(with `edgetrain[s3]` and the usual AWS credentials), or git+https://, git+ssh://, git+file:// and a "
        "repository. A token comes from --token-file, or from the variable EDGETRAIN_CACHE_TOKEN."
    ),
    words="ls | show ID | stats | verify | gc | clean | export FILE | import FILE | push URL | pull [URL] | serve",
    least_words=1,
    flags=(
        Flag(name="--store", metavar="FILE", parse=to_path, help="use this store instead of your own"),
        Flag(name="--level", metavar="L", parse=_level, help="ls, export: user, imported, team, seed or all"),
        Flag(name="--run", help="verify: also check results and times of entries on a model's kernels"),
        Flag(name="--model", metavar="M", help="verify --run: the recipe or model file; digits without it"),
        Flag(name="--keep-best", metavar="N", parse=_count, help="gc: keep the N fastest for each kernel and target"),
        Flag(name="--drop-failed", help="gc: remove entries that failed"),
        Flag(name="--rules", metavar="N", parse=_count, help="gc: remove entries for rules before version N"),
        Flag(name="--token-file", metavar="FILE", parse=to_path, help="push, pull, serve: the bearer token, in a file"),
        Flag(name="--all", help="push: all of your entries, not only the new ones; clean: the schedules as well"),
        Flag(name="--dry-run", help="clean: say what would be removed, and how much it is"),
        Flag(name="--sign", metavar="FILE", parse=to_path, help="push: sign with this ed25519 key (PEM)"),
        Flag(name="--forget", help="pull: remove this remote and its entries"),
        Flag(
            name="--trusted-keys",
            metavar="FILE",
            parse=to_path,
            help="import, pull, verify, serve: public keys, one a line; else those in your configuration",
        ),
        Flag(
            name="--require-signature", help="import, pull, verify, serve: refuse entries without a trusted signature"
        ),
        Flag(name="--read-only", help="serve: accept no pushes"),
        Flag(name="--host", metavar="H", help="serve: the address to listen at: 127.0.0.1"),
        Flag(name="--port", metavar="P", parse=_port, help="serve: the port: 8737; 0 takes a free one"),
    ),
    examples=(
        "edgetrain cache ls",
        "edgetrain cache verify --run --model digits",
        "edgetrain cache clean --dry-run",
        "edgetrain cache pull https://schedules.example.org --token-file token",
        "edgetrain cache push git+ssh://git@example.org/team/schedules.git",
        "edgetrain cache serve --token-file token",
    ),
    run=run,
)
