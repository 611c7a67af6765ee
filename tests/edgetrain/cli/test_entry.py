"""What every verb shares: help, exit codes, and how errors are told. Nothing here compiles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.cli.command import help_of, parse_arguments
from edgetrain.cli.console import error_text
from edgetrain.cli.entry import VERBS, main, top_help
from edgetrain.cli.failure import EXIT_CODES
from edgetrain.errors import ERRORS, PlanInfeasibleError
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget
from edgetrain.targets.opencl import OpenclSearch
from edgetrain.targets.profile import HOST
from edgetrain.units import Bytes
from tests.edgetrain.planner.training_graphs import chain, unit_costs

GOLDEN = Path(__file__).parent / "golden"
HEAVY = ("tvm", "numpy", "onnx", "tqdm")


def assert_golden(name: str, text: str) -> None:
    """Compares with the golden file; `EDGETRAIN_UPDATE_GOLDEN=1 pytest` writes it, for review in the diff."""
    path = GOLDEN / name
    if os.environ.get("EDGETRAIN_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_of_a_verb_reads_as_reviewed(verb: str) -> None:
    assert_golden(f"help-{verb}.txt", help_of(VERBS[verb]))


def test_the_first_screen_reads_as_reviewed() -> None:
    assert_golden("help.txt", top_help())


def test_the_list_of_targets_reads_as_reviewed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgetrain.targets.profile.find_opencl", OpenclSearch)  # whatever is here, none is found
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert any(line.startswith(HOST) for line in lines)
    assert_golden("targets.txt", "".join(line for line in lines if not line.startswith(HOST)))


def test_an_infeasible_plan_reads_as_reviewed() -> None:
    graph = chain(3)
    with pytest.raises(PlanInfeasibleError) as caught:
        make_plan(graph, Budget(memory_bytes=Bytes(1)), {f: unit_costs(graph, f) for f in graph.functions})
    assert_golden("infeasible.txt", error_text(caught.value) + "\n")


@pytest.mark.parametrize(
    "words",
    [("--help",), *((verb, "--help") for verb in sorted(VERBS)), ("targets",), ("recipes", "digits")],
    ids=" ".join,
)
def test_help_and_lists_import_nothing_heavy(words: tuple[str, ...], command_environment: Mapping[str, str]) -> None:
    script = f"""
import json, sys
from edgetrain.cli import main
code = main({list(words)!r})
print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=command_environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stderr) == [0, []]
    assert done.stdout


def test_importing_edgetrain_imports_nothing_of_it(command_environment: Mapping[str, str]) -> None:
    script = "import sys, edgetrain; print([m for m in sys.modules if m.startswith('edgetrain.')], dir(edgetrain))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=command_environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("[] [")
    assert "'fit'" in done.stdout


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_examples_of_a_verb_are_valid_commands(verb: str) -> None:
    for example in VERBS[verb].examples:
        program, name, *words = example.split()
        assert (program, name) == ("edgetrain", verb)
        parse_arguments(VERBS[verb], words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fti"], "no verb `fti` (did you mean `fit`?)"),
        (["train"], "no verb `train`; did you mean `edgetrain fit`?"),
        (["Train", "digits", "--budget", "1MB"], "hint: run `edgetrain fit digits --budget 1MB`"),
        (["train", "--gpu"], "hint: run `edgetrain fit`"),
        (["evaluate"], "hint: like `edgetrain eval "),
        (["fit", "--epochs", "3"], "hint: write `train.epochs=3` instead"),
        (["fit", "--lr=0.1"], "hint: write `train.learning_rate=0.1` instead"),
        (["fit", "--output-dir", "x"], "hint: write `--out x` instead"),
        (["fit", "--bugdet", "2GB"], "no flag `--bugdet` (did you mean `--budget`"),
        (["fit", "--budget"], "--budget"),
        (["fit", "--budget", "much"], "`much` is not a size"),
        (["fit", "--budget", "999999999999999999999GB"], "more than any machine has"),
        (["fit", "--out", ""], "a file or folder is empty"),
        (["fit", ""], "an argument is empty"),
        (["plan", "train.batch=" + "[" * 3000], "train.batch"),
        (["plan", "train.seed=" + "9" * 5000], "train.seed"),
        (["plan", "train.epsilon=1e300"], "at most 3.4e38"),
        (["plan", "train.batch=99999999999999999999"], "63 bits"),
        (["fit", "--threads", "0"], "`0` is not a whole number of 1 or more"),
        (["fit", "digits", "fashion-mnist"], "`digits` and `fashion-mnist` are two models or recipes"),
        (["fit", "dgits"], "no recipe `dgits` (did you mean `digits`?)"),
        (["fit", "epochs=3"], "`epochs` is not a known key (did you mean `train.epochs`?)"),
        (["fit", "train.epoch=3"], "`train.epoch` is not a known key (did you mean `train.epochs`"),
        (["plan", "--target", "jetsn"], "no target `jetsn` (did you mean `jetson`?)"),
        (["plan", "--solver", "magic"], "no solver `magic`"),
        (["inspect"], "needs RECIPE|MODEL.onnx"),
        (["eval"], "needs RUN"),
        (["eval", "one", "two"], "does not know what to do with `two`"),
        (["export", "run"], "needs --onnx or --program"),
        (["fit", "--resume"], "no run to resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_senseless_command_exits_2_and_says_what_is_wrong(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("error: ") == 1
    assert told in captured.err
    assert "Traceback" not in captured.err
    assert not list(tmp_path.iterdir())


def test_a_model_without_data_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.onnx").write_bytes(b"")
    assert main(["fit", "mine.onnx"]) == 2
    assert (
        "hint: add `data.source=PATH`, like `edgetrain fit mine.onnx data.source=data.npz`" in capsys.readouterr().err
    )


def test_a_missing_model_exits_5(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.onnx"]) == 5
    assert "no model file at `nowhere.onnx`" in capsys.readouterr().err


def test_a_folder_that_is_no_run_exits_5(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["eval", str(tmp_path)]) == 5
    assert "is not a run folder" in capsys.readouterr().err


def test_with_json_an_error_is_also_an_object_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--budget", "much", "--json"]) == 2
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["error"], told["exit_code"]) == ("UsageError", 2)
    assert captured.err.startswith(f"error: {told['what']}\n")


def test_no_words_at_all_show_the_help_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out == top_help()


def test_help_of_a_verb_may_be_asked_for_in_front_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "fit"]) == 0
    assert capsys.readouterr().out == help_of(VERBS["fit"])
    assert main(["help", "me"]) == 0
    assert capsys.readouterr().out == top_help()


def test_every_error_has_a_documented_exit_code() -> None:
    assert {error.exit_code for error in ERRORS.values()} | {0} == set(EXIT_CODES)


def test_flags_and_words_may_stand_in_any_order() -> None:
    verb = VERBS["fit"]
    one = parse_arguments(verb, ["digits", "--budget", "2GB", "train.epochs=3", "--resume"])
    other = parse_arguments(verb, ["--resume", "digits", "train.epochs=3", "--budget=2GB"])
    assert one == other
    assert (one.words, one.budget, one.resume) == (["digits", "train.epochs=3"], 2_000_000_000, True)


def test_a_reader_that_leaves_is_no_error(command_environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m edgetrain targets --json | head -c 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        env=command_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_interpreter_ends_does_not_change_the_exit_code(number: int) -> None:
    code = f"""
import os, sys
from edgetrain.cli.entry import main

class Last:  # goes when modules do, which is after Python has put back the default of each signal
    def __del__(self, kill=os.kill, own=os.getpid()):
        kill(own, {number:d})

last = Last()
sys.argv = ["edgetrain", "--version"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("edgetrain ")
