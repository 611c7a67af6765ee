"""Writes the results of `benchmarks/planner.py` as a page of tables and pictures.

    python -m benchmarks.planner_page planner.json docs

Writes `planner-results.md` and the pictures of `planner_pictures.py`. All numbers on the page come from that one file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planner_pictures import pictures

Row = Mapping[str, Any]

_NAMES = {
    "checkmate_un": "Checkmate, U-Net",
    "checkmate_vgg16": "Checkmate, VGG-16",
    "poet_linear__m4": "POET, chains, Cortex-M4",
    "poet_resnet18_cifar__a72": "POET, ResNet-18, Cortex-A72",
    "poet_transformer__m4": "POET, transformer, Cortex-M4",
    "poet_vgg16_cifar__m4": "POET, VGG-16, Cortex-M4",
}
_EQUAL = 1e-8  # relative: what solvers round by
_SWEPT = ("greedy", "milp", "checkmate", "capuchin", "sqrt-n", "swap-all")

_PURPOSE = """\
This page shows how good the planner's plans are, how long planning takes, and how closely real steps follow the
prediction. It is for anyone who wants to judge the planner. One run of `python -m benchmarks.planner` measured all
numbers."""
_MODELS = """\
The models are EfficientNet-Lite0 and ResNet-18 with batch 4 at 224 × 224 and SGD with momentum, and MiniLM-L6 with
batch 16 of 128 words and AdamW. The budget is a share of the memory that keeping everything takes. The costs are
measured: each kernel in its program, and the disk. Programs run on one thread, and their steps take turns with those of
a program that keeps everything. "Predicted" and "measured" are slowdowns relative to that program. "Spread" is the
middle half of the planned program's steps as a share of their median. "Method" says whether the plan can only
recompute, or also page. There is no row with "recompute" if parameters and state alone are larger than the budget."""
_PAGING = """\
The same plan and kernels run with the pager's thread ("overlapped") and without it ("synchronous"), in turns. The
storage is a file in memory behind a throttle. Both compute the same parameters, bit for bit. The thread needs a
processor of its own."""
_SWEEP = """\
The table shows how many times longer a step takes than with all memory, for a residual network on a board with an SD
card. Times are modelled. The exact solvers have five seconds. A dash means that the solver has no plan of that size."""
_REPEATS = """\
The exact solver plans networks of equal blocks with the host's costs. It runs twice: with a first search in which all
equal blocks share one decision, and without it ([why and how](adr/0018-repeated-blocks-are-decided-once.md))."""


def page(result: Mapping[str, Any]) -> str:
    parts = [
        "# Results of the planner",
        _introduction(result),
        "## Published instances",
        _table(("instance", "cases", "compared with the best known", "longest time"), _published(result["published"])),
        "![seconds and distance from the best known for every published case](planner-published.svg)",
        "## Comparison with brute force",
        _references(result),
        "## A thousand ops",
        _table(("network", "ops", "memory", "planned in", "slowdown", "gap"), map(_graph, result["graphs"])),
        "## Real models",
        _MODELS,
        _table(("model", "keep-all", "parameters and state", "disk reads", "writes", "latency"), _sizes(result)),
        _table(
            (
                *("model", "memory", "method", "planned in", "arena over budget", "fragmentation", "stored"),
                *("predicted", "measured", "spread", "n"),
            ),
            map(_model, result["models"]),
        ),
        "![predicted and measured slowdown](planner-models.svg)",
        "## Paging beside compute",
        _PAGING,
        _table(
            (
                *("model", "arena, share of keep-all", "transfers, share of a step", "synchronous", "overlapped"),
                *("ratio", "n"),
            ),
            map(_paging, result["paging"]),
        ),
        "## What less memory costs",
        _SWEEP,
        _table(("memory for temporaries", *_SWEPT), _sweep(result["sweep"])),
        "![slowdown over memory, by solver](planner-memory.svg)",
        "All solvers on a smaller network:",
        _table(("memory", "solver", "slowdown", "joules", "seconds"), map(_side_by_side, result["side_by_side"])),
        "## Equal blocks",
        _REPEATS,
        _table(
            ("network", "ops", "memory", "blocks decided once first", "slowdown", "gap"),
            map(_repeats, result["repeats"]),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(result: Mapping[str, Any]) -> str:
    machine, versions = result["machine"], result["versions"]
    broken = result["broken"]
    verdict = "All promises of the planner hold." if not broken else "These promises of the planner do not hold:"
    lines = [
        _PURPOSE,
        "",
        f"- Machine: {machine['cores']} cores of an {machine['cpu']}, {machine['system']}, Python {machine['python']}, "
        "one thread",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- Load: {result['load_at_start'][0]:.1f} at the start and {result['load_at_end'][0]:.1f} at the end",
        "",
        verdict,
        *(["", *(f"- {sentence}" for sentence in broken)] if broken else []),
    ]
    return "\n".join(lines)


def _published(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for instance in dict.fromkeys(row["instance"] for row in rows):
        cases = [row for row in rows if row["instance"] == instance]
        longest_s = max(row["seconds"] for row in cases)
        yield _NAMES.get(instance, instance), str(len(cases)), _against_best(cases), f"{longest_s:.1f} s"


def _against_best(cases: Sequence[Row]) -> str:
    solved = [row for row in cases if row["above_best"] is not None]
    worse = [row["above_best"] for row in solved if row["above_best"] > _EQUAL]
    better = [-row["above_best"] for row in solved if row["above_best"] < -_EQUAL]
    unproven = max((row["gap"] for row in solved), default=0.0)
    said = [f"{len(solved) - len(worse) - len(better)} equal"]
    said += [f"{len(better)} better by up to {max(better):.3%}"] if better else []
    said += [f"{len(worse)} worse by up to {max(worse):.3%}"] if worse else []
    said += [f"gap up to {unproven:.2%}"] if unproven > _EQUAL else []
    infeasible = [row for row in cases if row["above_best"] is None]
    said += [f"{len(infeasible)} without a solution: {infeasible[0]['verdict']}"] if infeasible else []
    return "; ".join(said)


def _references(result: Mapping[str, Any]) -> str:
    (graphs,), (placements,) = result["brute_force"], result["two_devices"]
    return (
        f"The planner and brute force solved {graphs['instances']:,} random graphs, of which {graphs['infeasible']} "
        f"have no plan: {len(graphs['differing'])} answers differ. They also solved {placements['instances']} random "
        f"placements on two devices, of which {placements['infeasible']} have no solution: "
        f"{len(placements['differing'])} answers differ."
    )


def _graph(row: Row) -> tuple[str, ...]:
    values = (row["graph"], str(row["ops"]), f"{row['share']:.0%}", f"{row['seconds']:.0f} s")
    return (*values, f"{row['slowdown']:.3f}", f"{row['gap']:.2%}")


def _sizes(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    first = {row["model"]: row for row in reversed(result["models"])}
    for model, row in reversed(first.items()):
        yield (
            model,
            f"{row['keep_all_bytes'] / 1e6:.0f} MB",
            f"{row['persistent_bytes'] / 1e6:.0f} MB",
            f"{row['read_bytes_per_s'] / 1e9:.1f} GB/s",
            f"{row['write_bytes_per_s'] / 1e9:.1f} GB/s",
            f"{row['latency_s'] * 1e6:.0f} µs",
        )


def _model(row: Row) -> tuple[str, ...]:
    name = (row["model"], f"{row['share']:.0%}", row["way"], f"{row['planning_s']:.1f} s")
    if not row["feasible"]:
        return (*name, "no plan: an op and its operands need more memory", *[""] * 6)
    return (
        *name,
        f"{row['measured_over_budget']:.3f}",
        f"{row['fragmentation']:.1%}",
        str(row["stored"]),
        f"{row['slowdown_predicted']:.3f}",
        f"{row['slowdown_measured']:.3f}",
        f"{row['spread']:.0%}",
        str(row["n"]),
    )


def _paging(row: Row) -> tuple[str, ...]:
    return (
        row["model"],
        f"{row['of keep-all']:.0%}",
        f"{row['transfers ms'] / row['unthrottled ms']:.0%}",
        f"{row['synchronous ms']:.1f} ms (spread {row['spread of it']:.2f})",
        f"{row['overlapped ms']:.1f} ms ({row['spread']:.2f})",
        f"{row['ratio']:.2f}",
        str(row["n"]),
    )


def _sweep(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for share in dict.fromkeys(row["share"] for row in rows):
        found = {row["solver"]: row["slowdown"] for row in rows if row["share"] == share and row["feasible"]}
        yield f"{share:.0%}", *(f"{found[solver]:.3f}" if solver in found else "–" for solver in _SWEPT)


def _side_by_side(row: Row) -> tuple[str, ...]:
    seconds = f"{row['seconds']:.3f}"
    name = (f"{row['share']:.0%}", row["solver"])
    if not row["feasible"]:
        return (*name, "–", "–", seconds)
    return (*name, f"{row['slowdown']:.3f}", f"{row['joules']:.4f}", seconds)


def _repeats(row: Row) -> tuple[str, ...]:
    name = (row["graph"], str(row["ops"]), f"{row['share']:.0%}", "yes" if row["once"] else "no")
    return (*name, f"{row['slowdown']:.4f}", f"{row['gap']:.2%}")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str]) -> int:
    source, out = Path(arguments[0]), Path(arguments[1])
    result = json.loads(source.read_text(encoding="utf-8"))
    files = {"planner-results.md": page(result), **pictures(result)}
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
