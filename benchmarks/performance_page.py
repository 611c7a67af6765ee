"""Writes the results of the benchmarks as a page: means first, then every row, with a reason where a peer is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import geometric_mean
from typing import Any

from benchmarks.kernels import means

UNKNOWN_REASON = "not explained yet"
# What keeps a kernel from the peak, by the field names of `Cost`; `products` is useful work and not listed.
_PARTS: Mapping[str, str] = {
    "waste": "unused vector lanes and registers",
    "copies": "copies",
    "stores": "stores of the result",
    "starts": "starting tiles",
    "fetches": "cache misses",
}
_WORTH_TELLING = 0.03
ONE_CORE = "edgetrain took as long as with one thread"
FASTEST = "the fastest peer for each model"

_NOTHING_GAINED = 0.8  # of one thread's time, or of that in turns

Row = Mapping[str, Any]
Reasons = Sequence[tuple[str, str]]  # a pattern, and why peers are faster in rows that match it

_STEPS = """\
`python -m benchmarks.step --against all` compares training steps.

- Every side trains all parameters of the same ONNX graph in float32 on the same batch, with SGD and momentum 0.9. ONNX
  Runtime trains without momentum, which it does not have. The first losses of all sides agree to 1e-3.
- The sides take turns, each in a process of its own. A speedup above 1 means that edgetrain is faster.
- Memory is how much a new process grows over three steps, weights included.
- "In half of the memory" is a second program of edgetrain. Its plan recomputes until it stays within half of the memory
  of the peer that uses least. A dash means that parameters and the largest kernel need more than that.
- GF/s count the products of the model, forward and backward, whichever algorithm computes them."""
_KERNELS = """\
`python -m benchmarks.kernels` compares single kernels with PyTorch's. The schedules come from the rules, without a
search. Times include packing on both sides."""
_START = """\
`python -m benchmarks.start` measures the time from the start of the process to the first loss: cold with an empty build
cache, warm with a full one."""

_STEP_TIMES = ("model", "batch", "threads", "peer", "step", "peer's step", "speedup")
_STEP_MORE = (
    *("memory", "peer's memory", "speedup in half of the memory", "memory then", "GF/s", "of the peak", "spread", "n"),
    "note, and the reason if the peer is faster",
)
_STEP_HEADER = (*_STEP_TIMES, *_STEP_MORE)
_STEP_MEAN_HEADER = (
    *("peer", "threads", "models", "mean speedup", "least", "memory relative to the peer"),
    *("models in half of the memory", "mean speedup"),
)
_KERNEL_TIMES = ("kernel", "shape", "threads", "time", "PyTorch's", "speedup")
_KERNEL_HEADER = (*_KERNEL_TIMES, "GF/s", "spread", "reason if PyTorch is faster")
_KERNEL_MEAN_HEADER = ("family", "threads", "shapes", "mean speedup", "least")
_START_HEADER = ("model", "batch", "cold", "warm", "spread", "n")


def page(documents: Mapping[str, Mapping[str, Any]], reasons: Reasons) -> str:
    """The page for the documents of `step`, `kernels` and `start`."""
    steps, kernels, starts = (documents[name]["rows"] for name in ("step", "kernels", "start"))
    compared = [row for row in steps if row["peer"] is not None]
    peaks = [row for row in steps if row["peer"] is None]
    parts = (
        "# Performance",
        _introduction(documents["step"], compared, peaks),
        "## Training steps",
        _STEPS,
        _table(_STEP_MEAN_HEADER, _step_means(compared)),
        _table(_STEP_HEADER, (_step_line(row, reasons, _singles(compared, _model)) for row in compared)),
        "## Kernels",
        _KERNELS,
        _table(_KERNEL_MEAN_HEADER, map(_kernel_mean_line, means(kernels))),
        _table(_KERNEL_HEADER, (_kernel_line(row, reasons, _singles(kernels, _kernel)) for row in kernels)),
        "## The first step",
        _START,
        _table(_START_HEADER, map(_start_line, starts)),
    )
    return "\n\n".join(parts) + "\n"


def _introduction(document: Mapping[str, Any], rows: Sequence[Row], peaks: Sequence[Row]) -> str:
    machine, versions = document["machine"], document["versions"]
    ours = ", ".join(f"{package} {versions[package]}" for package in ("edgetrain", "apache-tvm", "numpy", "onnx"))
    peers = ", ".join(sorted({row["peer_version"] for row in rows if row["peer_version"] is not None}))
    peak = ", ".join(f"{row['gflops']:.0f} GF/s on {_threads(row['threads'])}" for row in peaks)
    return f"""\
This page compares edgetrain's training steps and kernels with those of PyTorch, JAX and ONNX Runtime. It is for anyone
who wants to know how fast edgetrain is and how much memory it uses. `python -m benchmarks.performance` wrote it. Rows
in which edgetrain is slower are shown too.

Times are medians. A spread is the width of the middle half as a share of the median, first edgetrain's, then the
peer's.

- Machine: {machine["cpu"]}, {machine["cores"]} cores, {machine["system"]}, Python {machine["python"]}
- Peak: the speed of fused multiply-adds (`python -m benchmarks.machine_peak`): {peak}
- Versions: {ours}
- Peers: {peers}"""


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _step_means(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """For each number of threads: a line for each peer, and one for the fastest of them on each model."""
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        timed = [row for row in rows if row["threads"] == threads and row["speedup"] is not None]
        groups: dict[str, list[Row]] = {}
        fastest: dict[tuple[str, int], Row] = {}
        for row in timed:
            groups.setdefault(row["peer"], []).append(row)
            model = (row["model"], row["batch"])
            if model not in fastest or row["peer_seconds"] < fastest[model]["peer_seconds"]:
                fastest[model] = row
        groups[FASTEST] = list(fastest.values())
        lines += [_step_mean_line(peer, threads, group) for peer, group in groups.items() if group]
    return lines


def _step_mean_line(peer: str, threads: int, rows: Sequence[Row]) -> tuple[str, ...]:
    speedups = [row["speedup"] for row in rows]
    both = [(row["peak_bytes"], row["peer_peak_bytes"]) for row in rows]
    shares = [ours / theirs for ours, theirs in both if ours and theirs]
    memory = f"{geometric_mean(shares):.2f}" if shares else "-"
    halves = [row["half_speedup"] for row in rows if row["half_speedup"] is not None]
    return (
        *(peer, str(threads), str(len(rows)), f"{geometric_mean(speedups):.2f}", f"{min(speedups):.2f}", memory),
        *(str(len(halves)), f"{geometric_mean(halves):.2f}" if halves else "-"),
    )


def _model(row: Row) -> str:
    return f"{row['model']}:{row['batch']}"


def _kernel(row: Row) -> str:
    return f"{row['kernel']} {row['shape']}"


def _singles(rows: Iterable[Row], name: Callable[[Row], str]) -> dict[str, float]:
    """Our seconds on one thread, by name."""
    return {name(row): row["seconds"] for row in rows if row["threads"] == 1}


def _step_line(row: Row, reasons: Reasons, single_s: Mapping[str, float]) -> tuple[str, ...]:
    speedup = row["speedup"]
    why = _reason(f"{_model(row)} {row['peer']}", row, reasons, single_s.get(_model(row)))
    return (
        row["model"],
        str(row["batch"]),
        str(row["threads"]),
        row["peer"],
        _seconds(row["seconds"]),
        _seconds(row["peer_seconds"]),
        "-" if speedup is None else f"{speedup:.2f}",
        _megabytes(row["peak_bytes"]),
        _megabytes(row["peer_peak_bytes"]),
        "-" if row["half_speedup"] is None else f"{row['half_speedup']:.2f}",
        _megabytes(row["half_peak_bytes"]),
        f"{row['gflops']:.0f}",
        f"{row['share_of_peak']:.0%}",
        _spreads(row),
        str(row["n"]),
        "; ".join(filter(None, (row["note"], why))),
    )


def _kernel_mean_line(row: Row) -> tuple[str, ...]:
    mean, least = f"{row['mean_speedup']:.2f}", f"{row['least']:.2f}"
    return row["family"], str(row["threads"]), str(row["shapes"]), mean, least


def _kernel_line(row: Row, reasons: Reasons, single_s: Mapping[str, float]) -> tuple[str, ...]:
    return (
        row["kernel"],
        row["shape"],
        str(row["threads"]),
        _seconds(row["seconds"]),
        _seconds(row["peer_seconds"]),
        f"{row['speedup']:.2f}",
        f"{row['gflops']:.0f}",
        _spreads(row),
        _reason(_kernel(row), row, reasons, single_s.get(_kernel(row))),
    )


def _start_line(row: Row) -> tuple[str, ...]:
    times = (_seconds(row["cold_seconds"]), _seconds(row["warm_seconds"]))
    spreads = f"{row['cold_spread']:.0%}, {row['warm_spread']:.0%}"
    return row["model"], str(row["batch"]), *times, spreads, str(row["n"])


def _reason(what: str, row: Row, reasons: Reasons, single_s: float | None) -> str:
    """Why the peer is faster; empty if it is not. `single_s` is edgetrain's time on one thread."""
    if row["speedup"] is None or row["speedup"] >= 1:
        return ""
    alone_s = row.get("alone_seconds")
    if alone_s is not None and alone_s <= _NOTHING_GAINED * row["seconds"]:
        return f"when it does not take turns with the peer, it takes {_seconds(alone_s)}"
    if row["threads"] > 1 and single_s is not None and row["seconds"] >= _NOTHING_GAINED * single_s:
        return ONE_CORE
    known = next((text for pattern, text in reasons if fnmatchcase(what, pattern)), None)
    return known or _where_time_goes(row.get("time_goes_to") or {}) or UNKNOWN_REASON


def _where_time_goes(shares: Mapping[str, float]) -> str:
    """What keeps our kernel from the peak, by its rule's cost model; empty if there is no model or no large part."""
    found = [
        f"{share:.0%} {_PARTS[part]}" for part, share in shares.items() if part in _PARTS and share >= _WORTH_TELLING
    ]
    return f"part of our time, by the rule's cost model: {', '.join(found)}" if found else ""


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    unit, factor = ("s", 1.0) if value >= 1 else ("ms", 1e3) if value >= 1e-3 else ("µs", 1e6)
    return f"{value * factor:.3g} {unit}"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:.3g} MB"


def _spreads(row: Row) -> str:
    found = (row["spread"], row["peer_spread"])
    return ", ".join(f"{spread:.0%}" for spread in found if spread is not None)


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = (header, ["---"] * len(header), *lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
