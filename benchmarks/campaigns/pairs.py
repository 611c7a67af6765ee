"""Planned, measured and budget, of models, batches, budgets and threads drawn at random."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.campaigns.ground import Ground, Result

_MODELS = 8  # compiled, each with a batch and an optimizer of its own
_PAIRS = 32
_STEPS = 24
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_WIDTHS = (64, 256, 1024, 2048)  # the last has 4.3 million parameters, so that storing them matters


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    words: tuple[str, ...]
    smallest_bytes: int
    most_bytes: int  # what keeping everything takes, about


def memory_pairs(ground: Ground) -> Result:
    """Measured ≤ planned ≤ budget for the arena, and the process grows by no more than its budget."""
    rng = ground.rng("pairs")
    tries = 6 if ground.quick else _PAIRS
    subjects = [_subject(ground, rng, number) for number in range(2 if ground.quick else _MODELS)]
    wrong: list[str] = []
    arena, process, used, stored = [], [], [], 0
    for number in range(tries):
        report, words = _fit(ground, subjects[number % len(subjects)], rng, wrong)
        if report is None:
            continue
        budget, planned, measured = (
            report[name] for name in ("budget_bytes", "planned_peak_bytes", "measured_peak_bytes")
        )
        grew, growth = report["process_peak_bytes"], report["planned_process_bytes"]
        if not (measured <= planned <= budget and grew <= budget and report["is_within_budget"]):
            wrong.append(f"{words}: arena {measured} of {planned} planned, process {grew} of {growth}, budget {budget}")
        arena.append(measured / planned)
        process.append(grew / growth)
        used.append(grew / budget)
        stored += report["planned_stored"]
    detail = "; ".join(
        f"{name}: median {statistics.median(ratios):.3f}, least {min(ratios):.3f}, most {max(ratios):.3f}"
        for name, ratios in (
            ("arena, measured to planned", arena),
            ("process, measured to planned", process),
            ("process to budget", used),
        )
        if ratios
    )  # fmt: skip
    return Result(tries=tries, wrong=tuple(wrong), detail=f"{detail}; {stored} plans store parameters")


def _subject(ground: Ground, rng: random.Random, number: int) -> _Subject:
    """A model with its batch and optimizer, and between which budgets there is something to plan."""
    model: tuple[str, ...]
    if number % 2:
        width = _WIDTHS[-1] if number == 1 else rng.choice(_WIDTHS)
        model = (str(_dense(ground.new_folder("dense") / f"dense-{width}.onnx", width)), "data.source=bundled:digits")
    else:
        model = ("digits", f"model.source=zoo:{('digits-cnn', 'digits-cnn-bn')[number // 2 % 2]}")
    words = (*model, f"train.batch={rng.choice(_BATCHES)}", f"train.optimizer={rng.choice(('sgd', 'adam', 'adamw'))}")
    cwd = ground.new_folder("plan")
    least = json.loads(_output(ground, ("plan", *words, "--budget", "1kB", "--json"), cwd))
    ways = [way["memory_bytes"] for way in least["ways_out"] if way["kind"] == "budget"]
    kept = json.loads(_output(ground, ("plan", *words, "--solver", "keep-all", "--json"), cwd))
    return _Subject(words=words, smallest_bytes=ways[0], most_bytes=kept["keep_all_bytes"] + kept["beside_bytes"])


def _fit(
    ground: Ground, subject: _Subject, rng: random.Random, wrong: list[str]
) -> tuple[Mapping[str, Any] | None, str]:
    """The report of a run inside a budget between the smallest one and keeping everything; often the smallest."""
    reach = rng.choice((0.0, rng.random(), rng.random()))
    budget = int(subject.smallest_bytes + reach * max(0, subject.most_bytes - subject.smallest_bytes))
    threads = rng.randint(1, 2)
    flags = ("--budget", f"{budget}B", "--threads", str(threads), "--trial-time", "0s")
    folder = ground.new_folder("pair")
    words = ("fit", *subject.words, f"train.steps={_STEPS}", "train.learning_rate=0.0001", *flags, "--out", "run")
    command = ground.run(words, cwd=folder)
    said = " ".join(words)
    if command.code() == 3 and threads > 1:  # each further thread needs a stack: the smallest budget is that of one
        budget += 1 << 20
        words = tuple(f"{budget}B" if word == flags[1] else word for word in words)
        command = ground.run(words, cwd=folder)
    if command.code() != 0:
        wrong.append(f"`{said}` ended with {command.code()}: {command.text()[-500:]}")
        return None, said
    report = json.loads((folder / "run" / "report.json").read_text())
    manifest = json.loads((folder / "run" / "program" / "manifest.json").read_text())
    return {**report, "planned_stored": _stores(manifest)}, said


def _stores(manifest: Any) -> bool:
    """Whether a tensor has no place in the arena."""
    return any(tensor.get("offset") is None for tensor in manifest["tensors"].values())


def _output(ground: Ground, words: tuple[str, ...], cwd: Path) -> str:
    command = ground.run(words, cwd=cwd)
    if command.code() not in (0, 3):
        raise SystemExit(f"`{' '.join(words)}` ended with {command.code()}: {command.text()}")
    return command.told.with_suffix(".out").read_text()


def _dense(path: Path, width: int) -> Path:
    """Three dense layers over the digits' images."""
    rng = np.random.Generator(np.random.PCG64(width))
    sizes = (64, width, width, 10)
    weights, nodes, last = {}, [helper.make_node("Flatten", ["x"], ["flat"])], "flat"
    for number, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{number}"] = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        weights[f"b{number}"] = np.zeros(columns, np.float32)
        nodes.append(helper.make_node("Gemm", [last, f"w{number}", f"b{number}"], [f"y{number}"]))
        last = f"y{number}"
        if columns == width:
            nodes.append(helper.make_node("Relu", [last], [f"a{number}"]))
            last = f"a{number}"
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path
