"""Writes the results of `benchmarks/coverage.py` as a page: a line for every file, and why some do not train."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

_TOLERANCE = 1e-4  # of the largest output, against onnxruntime


def _is_close(row: Row) -> bool:
    return row.get("forward") is None or row["forward"] <= _TOLERANCE or bool(row.get("quantised"))


def trains(row: Row) -> bool:
    return row.get("step") == "yes" and _is_close(row) and row.get("differences", "yes") in ("yes", "torch")


def summary_of(row: Row) -> str:
    if trains(row):
        return f"trains, {row['parameters']:,} parameters, losses {row['losses']}, forward {row['forward']:.1e}"
    return f"does not train: {row.get('reason') or row}"


def headline(rows: Sequence[Row]) -> str:
    packages = {(r["registry"], r["package"]) for r in rows}
    return f"{sum(map(trains, rows))} of {len(rows)} files from {len(packages)} packages train"


_INTRODUCTION = """\
This page shows which ONNX files from public packages edgetrain can train. It is for anyone who wants to know whether
their own model is likely to train. `python -m benchmarks.coverage` wrote it."""

_LEGEND = """Each file goes through these steps:

1. It is imported with the batch and input sizes in `benchmarks/coverage_files.py`.
2. Its outputs are compared with onnxruntime's. `forward` is the largest difference, as a share of the largest output.
3. Every parameter is trained for three steps of SGD on one made-up batch. The labels are scattered around the model's
   own output, and the loss is the mean squared error. `step` is yes if the loss falls by more than a millionth at one
   of seven learning rates from 1e-8 to 1e4, which are tried in a fixed order. (Nearly flat outputs need large rates,
   large outputs need small ones. `rate` in the JSON is the rate that worked.) This shows that the graph compiles, runs
   and reduces the loss. It does not show that the model learns a task.
4. `differences` is the check of `edgetrain check`: the gradients of up to 16 tensors, spread over the model, are
   compared with finite differences of the loss. `yes` means that they agree within 2 %, `no` that one is wrong, and
   `open` that too few could be decided, because of kinks or rounding. `differences_text` in the JSON is the whole
   answer. `torch` means that finite differences leave it open, but every gradient agrees with PyTorch's in float64
   within 2 % of its largest element (`torch` in the JSON is the largest difference).

A file marked *q* is a quantised model. edgetrain trains the float model behind it, whose outputs differ from the
quantised outputs by rounding.
"""


def to_markdown(rows: Sequence[Row]) -> str:
    lines = ["# Which real ONNX files train", "", _INTRODUCTION, "", f"**{headline(rows)}.**"]
    lines += [
        "",
        _LEGEND,
        "| package | file | opset | ops | parameters | import | forward | gradients | step | differences |",
    ]
    lines += ["|---|---|---:|---:|---:|---|---:|---|---|---|"]
    for row in rows:
        forward = row.get("forward")
        shown = "–" if forward is None or not math.isfinite(forward) else f"{forward:.0e}"
        cells = [
            f"{row['package']} {row['version']} ({row['registry']})",
            f"{row['path'].rsplit('/', 1)[-1]}{' *q*' if row.get('quantised') else ''}",
            str(row.get("opset", "–")),
            f"{row['ops']} kinds, {row['nodes']:,} nodes" if "ops" in row else "–",
            f"{row['parameters']:,}" if "parameters" in row else "–",
            str(row.get("import", "–")),
            shown,
            str(row.get("gradients", "–")),
            str(row.get("step", "–")),
            str(row.get("differences", "not run")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    failed = [row for row in rows if not trains(row)]
    lines += ["", "## What does not train, and why", ""]
    lines += [f"- `{r['package']}/{r['path'].rsplit('/', 1)[-1]}`: {_reason(r)}" for r in failed] or ["Nothing."]
    return "\n".join(lines) + "\n"


def _reason(row: Row) -> str:
    if "reason" in row:
        return " ".join(str(row["reason"]).split())
    if not _is_close(row):
        return f"its outputs differ from onnxruntime's by {row['forward']:.1e}"
    return str(row.get("differences_text") or row.get("losses") or "unknown")
