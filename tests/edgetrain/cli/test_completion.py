"""Real shells complete edgetrain's commands."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.cli.command import parse_arguments
from edgetrain.cli.completion import SHELLS, VALUES, WORDS, completion_parser, keys, without_words
from edgetrain.cli.entry import VERBS, main
from edgetrain.recipes import load_recipe
from tests.edgetrain.test_readme import ROOT

pytestmark = pytest.mark.slow

# What is typed, and the command that it becomes. `~` is the TAB key.
TYPED = {
    "insp~dig~": "inspect digits",
    "fit --targ~jets~": "fit --target jetson",
    "fit digits --budget 1MB train.optimizer=adamw~": "fit digits --budget 1MB train.optimizer=adamw",
    "fit digits --quiet train.optim~sg~": "fit digits --quiet train.optimizer=sgd",
    "eval runs/fir~": "eval runs/first",
    "fit mine~": "fit mine.onnx",
    "recipes val~": "recipes validate",
}


@pytest.fixture
def place(tmp_path: Path, command_environment: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """A folder with a run and a model, and an `edgetrain` that completes as ours and else prints what it was given."""
    work, programs = tmp_path / "work", tmp_path / "bin"
    (work / "runs" / "first").mkdir(parents=True)
    (work / "runs" / "first" / "recipe.json").write_text("{}")
    (work / "mine.onnx").write_text("")
    programs.mkdir()
    ours = f"exec {shlex.quote(sys.executable)} -m edgetrain"
    script = programs / "edgetrain"
    script.write_text(
        f'#!/bin/sh\nif [ -n "$_ARGCOMPLETE" ] || [ "$1" = completion ]; then {ours} "$@"; fi\necho "RAN <$*>"\n'
    )
    script.chmod(0o755)
    environment = {**command_environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
    return work, environment


def typed_into(shell: list[str], lines: list[str], work: Path, environment: Mapping[str, str]) -> str:
    """All that an interactive shell wrote: each line goes in once the one before has been carried out."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        shell, cwd=work, env=environment, stdin=end, stdout=end, stderr=end, start_new_session=True
    )
    os.close(end)
    shown = b""
    try:
        for number, line in enumerate(lines):
            mark = f"DONE-{number}"
            # Split, so that the echo of what is typed is not taken for the answer.
            os.write(terminal, f"{line}; echo DONE'-'{number}\n".encode())
            while mark.encode() not in shown:
                assert select.select([terminal], [], [], 60)[0], shown.decode(errors="replace")
                shown += os.read(terminal, 65536)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return shown.decode(errors="replace")


@pytest.mark.parametrize("typed", TYPED)
@pytest.mark.parametrize(
    ("shell", "prepare"),
    [
        (["bash", "--norc", "--noprofile", "-i"], "true"),
        (["zsh", "-f", "-i"], "autoload -U compinit && compinit -u -D"),
    ],
    ids=["bash", "zsh"],
)
def test_what_is_typed_with_tab_becomes_the_whole_command(
    shell: list[str], prepare: str, typed: str, place: tuple[Path, Mapping[str, str]]
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"needs {shell[0]}")
    setup = f'{prepare}; eval "$(edgetrain completion {shell[0]})"'
    written = typed_into(shell, [setup, f"edgetrain {typed.replace('~', chr(9))}"], *place)
    assert f"RAN <{TYPED[typed]}>" in written.replace("/>", ">"), written


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("edgetrain insp", "inspect"),
        ("edgetrain fit --budget 1MB dig", "digits"),
        ("edgetrain fit digits --budget 1MB train.optimi", "train.optimizer="),
        ("edgetrain fit --target jets", "jetson"),
        ("edgetrain eval runs/fi", "runs/first"),
    ],
)
def test_fish_is_told_what_a_line_could_become(
    line: str, found: str, place: tuple[Path, Mapping[str, str]], tmp_path: Path
) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs fish")
    work, environment = place
    script = f"edgetrain completion fish | source; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=work,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    offered = [text.split("\t")[0].rstrip("/") for text in done.stdout.splitlines()]
    assert offered == [found], done.stdout + done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_that_the_shell_can_read(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "edgetrain" in script
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_a_shell_that_nobody_knows_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fsh"]) == 2
    assert "there is no completion for `fsh` (did you mean `fish`" in capsys.readouterr().err


def test_every_verb_and_flag_is_in_the_parser_that_completes() -> None:
    (below,) = (action for action in completion_parser(VERBS)._actions if action.choices)
    assert below.choices is not None
    for name, verb in VERBS.items():
        parser = below.choices[name]  # type: ignore[index]  # typed as a container, is a mapping
        assert {flag.name for flag in verb.all_flags} <= set(parser._option_string_actions)


def test_what_can_be_completed_is_for_metavars_and_verbs_that_there_are() -> None:
    metavars = {flag.metavar for verb in VERBS.values() for flag in verb.all_flags}
    assert set(VALUES) <= metavars
    planned = {"predict", "report", "compare"}  # verbs that work on runs
    assert set(WORDS) <= VERBS.keys() | planned


def test_every_key_that_is_offered_is_one_of_recipes_and_so_is_each_choice() -> None:
    offered = list(keys("train."))
    assert {"train.batch=", "data.source=", "data.audio.mels=", "metric=", "expect="} <= set(offered)
    for choice in keys("train.optimizer="):
        load_recipe("digits", [choice])


def test_words_before_the_one_that_is_completed_are_left_out_and_flags_keep_their_values() -> None:
    line = ["edgetrain", "fit", "digits", "--budget", "1MB", "train.batch=4", "--quiet", "--out=x"]
    assert without_words(VERBS, line) == ["edgetrain", "fit", "--budget", "1MB", "--quiet", "--out=x"]
    parse_arguments(VERBS["fit"], without_words(VERBS, line)[2:])


def test_the_page_says_how_each_shell_is_set_up() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for shell in SHELLS:
        assert f"edgetrain completion {shell}" in text
