"""The page of the benchmarks: every row is there, slower ones with their reason, and means are over the right rows."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.performance_page import FASTEST, ONE_CORE, UNKNOWN_REASON, page

REASONS = (("mlp:32 *", "its product is tiny"),)


def step_row(model: str, peer: str, peer_seconds: float | None, **more: object) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": model,
        "batch": 32,
        "threads": 1,
        "peer": peer,
        "seconds": 0.5,
        "peak_bytes": 10_000_000,
        "gflops": 50.0,
        "share_of_peak": 0.5,
        "spread": 0.01,
        "n": 15,
        **dict.fromkeys(("peer_seconds", "speedup", "peer_spread", "peer_peak_bytes", "peer_version", "note")),
        **dict.fromkeys(("half_seconds", "half_speedup", "half_peak_bytes")),
    }
    if peer_seconds is not None:
        row |= {"peer_seconds": peer_seconds, "speedup": peer_seconds / 0.5, "peer_spread": 0.02}
        row |= {"peer_peak_bytes": 40_000_000, "peer_version": f"{peer} 1.0", "note": ""}
    return row | more


KERNEL: dict[str, Any] = {
    "kernel": "matmul",
    "shape": "8x8x8",
    "threads": 1,
    "seconds": 2e-6,
    "peer_seconds": 1e-6,
    "speedup": 0.5,
    "gflops": 40.0,
    "spread": 0.1,
    "peer_spread": 0.1,
    "family": "matmul",
}
START: dict[str, Any] = {
    "model": "mlp",
    "batch": 32,
    "cold_seconds": 12.0,
    "warm_seconds": 0.9,
    "cold_spread": 0.1,
    "warm_spread": 0.2,
    "n": 3,
}


def shown(*steps: dict[str, Any], kernel: dict[str, Any] = KERNEL) -> list[list[str]]:
    """The cells of every line of every table."""
    peak = {"model": "machine_peak", "peer": None, "threads": 1, "gflops": 110.0, "n": 30}
    machine = {"cpu": "a processor", "cores": 2, "system": "Linux", "python": "3.11"}
    versions = {"edgetrain": "1", "apache-tvm": "2", "numpy": "3", "onnx": "4"}
    documents: dict[str, dict[str, Any]] = {
        "step": {"machine": machine, "versions": versions, "rows": [peak, *steps]},
        "kernels": {"rows": [kernel]},
        "start": {"rows": [START]},
    }
    lines = page(documents, REASONS).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_a_faster_peer_is_shown_with_the_reason() -> None:
    (line,) = [cells for cells in shown(step_row("mlp", "torch", 0.25)) if cells[0] == "mlp" and "torch" in cells]
    assert line[6] == "0.50"
    assert line[-1] == "its product is tiny"


def test_what_half_of_the_memory_costs_stands_beside_it_and_a_dash_where_nothing_fits() -> None:
    half = {"half_speedup": 1.75, "half_peak_bytes": 20_000_000}
    rows = shown(step_row("cnn", "torch", 1.0, **half), step_row("mlp", "torch", 1.0))
    shares = {cells[0]: cells[7:11] for cells in rows if "torch" in cells[1:4]}
    assert shares == {"cnn": ["10 MB", "40 MB", "1.75", "20 MB"], "mlp": ["10 MB", "40 MB", "-", "-"]}
    (mean,) = [cells for cells in rows if cells[0] == "torch"]
    assert mean[-2:] == ["1", "1.75"]


def test_threads_that_brought_nothing_are_the_reason_themselves() -> None:
    rows = shown(step_row("mlp", "torch", 1.0), step_row("mlp", "torch", 0.4, threads=2))
    (line,) = [cells for cells in rows if cells[0] == "mlp" and cells[2] == "2"]
    assert line[-1] == ONE_CORE


def test_a_slower_kernel_tells_where_its_time_goes_but_for_crumbs() -> None:
    shares = {"products": 0.7, "waste": 0.18, "copies": 0.11, "stores": 0.01, "starts": 0.0, "fetches": 0.0}
    (line,) = [cells for cells in shown(kernel=KERNEL | {"time_goes_to": shares}) if cells[1] == "8x8x8"]
    said = "part of our time, by the rule's cost model: 18% unused vector lanes and registers, 11% copies"
    assert line[-1] == said


def test_a_kernel_that_is_much_faster_by_itself_says_so() -> None:
    slow = KERNEL | {"alone_seconds": 0.5 * KERNEL["seconds"]}
    (line,) = [cells for cells in shown(kernel=slow) if cells[1] == "8x8x8"]
    assert line[-1].startswith("when it does not take turns with the peer, it takes ")


def test_a_slower_peer_needs_no_reason() -> None:
    (line,) = [cells for cells in shown(step_row("mlp", "torch", 1.0)) if cells[0] == "mlp" and "torch" in cells]
    assert (line[6], line[-1]) == ("2.00", "")


def test_a_note_is_shown_whoever_is_faster() -> None:
    for peer_seconds, expected in ((1.0, "no momentum"), (0.25, "no momentum; its product is tiny")):
        lines = shown(step_row("mlp", "ort", peer_seconds, note="no momentum"))
        (line,) = [cells for cells in lines if cells[0] == "mlp" and "ort" in cells]
        assert line[-1] == expected


def test_what_nobody_explained_says_so() -> None:
    (line,) = [cells for cells in shown(step_row("mlp", "torch", 1.0)) if cells[:2] == ["matmul", "8x8x8"]]
    assert line[-1] == UNKNOWN_REASON


def test_a_peer_that_cannot_train_a_model_is_shown_and_not_counted() -> None:
    lines = shown(step_row("mlp", "torch", 1.0), step_row("mlp", "ort", None, note="no gradient of Erf"))
    (line,) = [cells for cells in lines if cells[0] == "mlp" and "ort" in cells]
    assert (line[5], line[6], line[-1]) == ("-", "-", "no gradient of Erf")
    assert not [cells for cells in lines if cells[0] == "ort"]


def test_the_last_mean_is_over_the_fastest_peer_of_each_model() -> None:
    rows = [
        step_row("mlp", "torch", 1.0),
        step_row("mlp", "jax", 2.0),
        step_row("cnn", "torch", 16.0),
        step_row("cnn", "jax", 4.0),
    ]
    means = {cells[0]: cells for cells in shown(*rows) if cells[0] in ("torch", "jax", FASTEST)}
    assert float(means["torch"][3]) == pytest.approx((2 * 32) ** 0.5, abs=0.01)
    assert float(means[FASTEST][3]) == pytest.approx((2 * 8) ** 0.5, abs=0.01)
    assert means[FASTEST][4:6] == ["2.00", "0.25"]
