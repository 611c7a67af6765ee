"""Command lines that nobody would write: each ends with a documented code, in words.

Each runs in a process of its own, forked from one in which the command line is loaded.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.campaigns.ground import SHORT, Ground, Result

_LINES, _QUICK_LINES = 520, 60
_PATIENCE_S = 20.0
_MOST_FILE_BYTES = 64 << 20
_BUG = ("Traceback (most recent call last)", "internal error")
_RUN = "run"  # a copy of a finished run, in the working directory
# What serves, fetches or opens a browser is left out, and so are the names below among the flags.
_LINES_OF = (
    ("fit", *SHORT, "--out", "new"),
    ("fit", "--resume", "--out", _RUN),
    ("fit", "digits", "train.steps=1", "--budget", "1kB"),
    ("plan", "digits", "--budget", "1kB"),
    ("plan", "model.onnx", "train.batch=4", "--deadline", "1ms", "--json"),
    ("inspect", "model.onnx", "--parameters"),
    ("eval", _RUN, "--json"),
    ("predict", _RUN, "data.npz", "--top", "3"),
    ("report", _RUN, "--out", "page.html"),
    ("compare", _RUN, _RUN, "--out", "page.html"),
    ("export", _RUN, "--onnx", "out.onnx"),
    ("export", _RUN, "--safetensors", "out.safetensors", "--program", "folder"),
    ("import-weights", _RUN, "trained.bin"),
    ("budget", _RUN, "1MB", "--timeout", "1s"),
    ("cache", "ls", "--level", "all"),
    ("cache", "stats", "--json"),
    ("cache", "import", "entries.jsonl"),
    ("cache", "gc", "--keep-best", "2"),
    ("recipes", "digits"),
    ("recipes", "validate", "recipe.toml"),
    ("targets", "host"),
    ("doctor", "--json"),
    ("completion", "bash"),
)
_FLAGS = (
    "--budget", "--deadline", "--energy", "--target", "--solver", "--threads", "--out", "--resume", "--json", "--top",
    "--share", "--weight", "--nodes", "--minimize", "--wear", "--dump", "--trial-time", "--csv", "--onnx", "-q", "-v",
)  # fmt: skip
_VALUES = (
    "", " ", "-", "--", "0", "-1", "1e308", "nan", "inf", "9" * 5000, "1MB", "999999999999GB", "é", "\udcff", "\x1b[2J",
    "/dev/null", "/dev/full", "/proc/self/mem", "/", "..", "fifo", "a\nb", "x" * 5000, "[" * 3000, "digits", "{}", "'",
    "desk=2GB", "train.epochs=nan", "train.batch=99999999999999999999", "train.learning_rate=-1", "data.source=fifo",
    "model.classes=2", "update.mode=lora", "train.epsilon=1e300", "data.augment.mixup=1", "a.b.c.d=1", "=", "train=1",
)  # fmt: skip


def command_lines(ground: Ground) -> Result:
    """Words of commands that work are dropped, doubled, swapped, cut and replaced, with odd files in reach."""
    count = _QUICK_LINES if ground.quick else _LINES
    folder = ground.new_folder("lines")
    command = [sys.executable, "-m", "benchmarks.campaigns.command_lines", str(ground.finished_run), str(count)]
    done = subprocess.run(
        [*command, str(ground.seed)],
        cwd=folder,
        env={**ground.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [f"{row['line']}: {row['wrong']}" for row in rows if row["wrong"]]
    if len(rows) != count:
        wrong.append(f"{len(rows)} of {count} lines were run: {done.stderr[-800:]}")
    codes = Counter(str(row["code"]) for row in rows)
    said = ", ".join(f"{n} with {code}" for code, n in sorted(codes.items()))
    return Result(tries=count, wrong=tuple(wrong), detail=f"exit codes: {said}")


def mutated(rng: random.Random) -> tuple[str, ...]:
    """A command line that works, with one to three changes."""
    words = list(rng.choice(_LINES_OF))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(1, len(words) + 1)
        match rng.randrange(6):
            case 0 if len(words) > 1:
                del words[min(place, len(words) - 1)]
            case 1:
                words.insert(place, rng.choice(_FLAGS))
            case 2:
                words.insert(place, rng.choice(_VALUES))
            case 3 if place < len(words):
                words[place] = rng.choice(_VALUES)
            case 4 if place < len(words):
                at = rng.randrange(len(words[place]) + 1)
                words[place] = words[place][:at] + rng.choice("=.-\x7f0é") + words[place][at + 1 :]
            case _:
                words[0], words[place - 1] = words[place - 1], words[0]
    return tuple(word.replace("\0", "") for word in words)


def main(arguments: Sequence[str]) -> None:
    """The process that the lines are forked from: `RUN COUNT SEED`; writes a line of JSON for each."""
    from edgetrain.cli import entry
    from edgetrain.cli.failure import EXIT_CODES

    run, count, seed = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    for number in range(count):
        words = mutated(random.Random(f"{seed}/line {number}"))
        place = Path(f"{number}")
        _furnish(place, run)
        child = os.fork()
        if child == 0:
            os.chdir(place)
            os.setsid()
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
            _redirect(Path("said"))
            sys.exit(entry.main(words))
        code, was_late = _wait(child)
        said = (place / "said").read_text(errors="replace")
        wrong = [words for words in _BUG if words in said]
        if code not in EXIT_CODES:
            wrong.append(f"exit code {code}")
        if was_late and code != 130:
            wrong.append(f"took more than {_PATIENCE_S:g} s and did not stop")
        tail = said[-600:] if wrong else ""
        print(json.dumps({"line": repr(words)[:300], "code": code, "wrong": "; ".join([*wrong, tail])}), flush=True)


def _furnish(place: Path, run: Path) -> None:
    place.mkdir()
    os.mkfifo(place / "fifo")
    for name, content in (("model.onnx", b"\x08\x08"), ("data.npz", b"PK\x03\x04"), ("trained.bin", b"\0" * 100)):
        (place / name).write_bytes(content)
    (place / "entries.jsonl").write_text("{}\n[\n")
    (place / "recipe.toml").write_text('extends = "digits"\n[train]\nepochs = 1\n')
    subprocess.run(["cp", "-r", str(run), str(place / _RUN)], check=True)


def _redirect(to: Path) -> None:
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _wait(child: int) -> tuple[int, bool]:
    """The exit code, and whether it had to be stopped, as with Ctrl-C."""
    ends, was_late = time.monotonic() + _PATIENCE_S, False
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), was_late
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL if was_late else signal.SIGINT)
            ends, was_late = time.monotonic() + _PATIENCE_S, True
        time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1:])
