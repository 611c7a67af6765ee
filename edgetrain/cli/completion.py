"""`edgetrain completion`: the shell completes verbs, flags, recipes, targets, run folders, keys and files.

argcomplete has the shells' side of it (docs/adr/0031). It runs `edgetrain` for each TAB, so that it completes what is
there now: new recipes, a user's own targets, runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from edgetrain.cli.command import Verb
from edgetrain.cli.console import Console
from edgetrain.errors import UsageError
from edgetrain.recipes import list_recipes
from edgetrain.schema import Limits, close_to

SHELLS: Mapping[str, str] = {
    "bash": 'eval "$(edgetrain completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(edgetrain completion zsh)" in ~/.zshrc, after compinit',
    "fish": "edgetrain completion fish > ~/.config/fish/completions/edgetrain.fish",
}
_RUNS = Path("runs")
_RECIPE_FILES = (".toml", ".onnx")

Words = Callable[[str], Iterable[str]]  # from the beginning of a word to words that begin like it, and perhaps others


def run(arguments: argparse.Namespace, console: Console) -> int:
    from argcomplete.shell_integration import shellcode

    (shell,) = arguments.words
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for `{shell}`{close_to(shell, SHELLS)}", fix=f"like `{_EXAMPLE}`")
    script = shellcode(["edgetrain"], shell=shell)
    console.data(json.dumps({"shell": shell, "script": script}) + "\n" if console.as_json else script)
    return 0


def complete(verbs: Mapping[str, Verb]) -> None:
    """Answers the shell and ends the process; comes back where the shell has asked nothing."""
    import argcomplete

    class Finder(argcomplete.CompletionFinder):  # type: ignore[misc]  # argcomplete's types are not looked at
        """Words may stand before and after flags. argparse takes them only in one place, and there no matter which."""

        def _get_completions(self, comp_words: list[str], *rest: Any) -> list[str]:
            found: list[str] = super()._get_completions(without_words(verbs, comp_words), *rest)
            return found

    Finder()(
        completion_parser(verbs), always_complete_options="long", default_completer=argcomplete.SuppressCompleter()
    )


def without_words(verbs: Mapping[str, Verb], line: Sequence[str]) -> list[str]:
    """The program, its verb, and the flags with their values: what stands before the word that is completed."""
    verb = verbs.get(line[1]) if len(line) > 1 else None
    if verb is None:
        return list(line)
    takes_value = {name for flag in verb.all_flags if flag.metavar for name in (flag.name, flag.short) if name}
    kept = list(line[:2])
    for before, word in pairwise(line[1:]):
        if word.startswith("-") or before in takes_value:
            kept.append(word)
    return kept


def completion_parser(verbs: Mapping[str, Verb]) -> argparse.ArgumentParser:
    """Every verb with its flags, each with what its value can be."""
    top = argparse.ArgumentParser(prog="edgetrain", add_help=False)
    below = top.add_subparsers()
    for verb in verbs.values():
        parser = below.add_parser(verb.name, help=verb.summary, add_help=False)
        for flag in verb.all_flags:
            names = [name for name in (flag.name, flag.short) if name]
            if flag.metavar:
                _completed(parser.add_argument(*names, help=flag.help), VALUES.get(flag.metavar))
            else:
                parser.add_argument(*names, action="store_true", help=flag.help)
        _completed(parser.add_argument("words", nargs="*"), WORDS.get(verb.name))
    return top


def _completed(action: argparse.Action, words: Words | None) -> None:
    if words is not None:
        action.completer = lambda prefix, **_: list(words(prefix))  # type: ignore[attr-defined]  # argcomplete's name


def _files(prefix: str) -> Iterable[str]:
    from argcomplete.completers import FilesCompleter

    found: list[str] = FilesCompleter()(prefix)
    return found


def _folders(prefix: str) -> Iterable[str]:
    from argcomplete.completers import DirectoriesCompleter

    found: list[str] = DirectoriesCompleter()(prefix)
    return found


def _targets(_prefix: str) -> Iterable[str]:
    from edgetrain.targets.profile import list_targets

    return list_targets()


def _solvers(_prefix: str) -> Iterable[str]:
    from edgetrain.planner.known_solvers import SOLVERS

    return sorted(SOLVERS)


def _runs(prefix: str) -> Iterable[str]:
    """Run folders below `runs`; where none begins like that, folders anywhere."""
    own = [str(path) for path in sorted(_RUNS.glob("*")) if (path / "recipe.json").is_file()]
    fitting = [folder for folder in own if folder.startswith(prefix)]
    return fitting or _folders(prefix)


def _models(prefix: str) -> Iterable[str]:
    """Recipes, model files, and keys: what stands behind `fit`."""
    files = [name for name in _files(prefix) if name.endswith(("/", *_RECIPE_FILES))]
    return (*list_recipes(), *files, *keys(prefix))


def keys(prefix: str) -> Iterable[str]:
    """The recipe's keys as overrides begin; behind the equals sign what can be chosen, and files for a source."""
    known = dict(_keys())
    key, equals, value = prefix.partition("=")
    if not equals:
        return [f"{name}=" for name in known]
    if key in ("data.source", "model.source"):
        return [f"{key}={name}" for name in _files(value)]
    return [f"{key}={choice}" for choice in known.get(key, ())]


def _keys() -> Iterable[tuple[str, tuple[str, ...]]]:
    from edgetrain.recipes import Recipe

    yield from _keys_of(Recipe, "")


def _keys_of(kind: Any, above: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Each key with what can be chosen for it."""
    import typing

    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _keys_of(hints[field.name], f"{above}{field.name}.")
        elif field.name != "name":
            limits: Limits = field.metadata.get("limits", Limits())
            yield f"{above}{field.name}", limits.choices


def _cache_actions(_prefix: str) -> Iterable[str]:
    from edgetrain.cli.cache import ACTIONS

    return ACTIONS


VALUES: Mapping[str, Words] = {  # by metavar
    "T": _targets,
    "S": _solvers,
    "M": _models,
    "L": lambda _: ("user", "team", "seed", "all"),
    "WHAT": lambda _: ("time", "energy"),
    "FILE": _files,
    "DIR": _folders,
    "SOURCE": _files,
}
WORDS: Mapping[str, Words] = {  # by verb
    **dict.fromkeys(("fit", "plan", "tune", "check", "inspect"), _models),
    **dict.fromkeys(("eval", "export", "budget", "predict", "report", "compare"), _runs),
    "recipes": lambda prefix: ("copy", "validate", *_models(prefix)),
    "targets": lambda prefix: ("calibrate", *_targets(prefix)),
    "cache": _cache_actions,
    "completion": lambda _: SHELLS,
}
_EXAMPLE = "edgetrain completion bash"

VERB = Verb(
    name="completion",
    summary="print what makes a shell complete edgetrain's commands",
    description=(
        "Prints a script for your shell. Verbs, flags, recipes, targets, run folders, keys and files are then "
        "completed with TAB. To have it in every shell:\n\n" + "\n\n".join(SHELLS.values())
    ),
    words="bash | zsh | fish",
    least_words=1,
    most_words=1,
    examples=(_EXAMPLE, "edgetrain completion zsh", "edgetrain completion fish"),
    run=run,
)
