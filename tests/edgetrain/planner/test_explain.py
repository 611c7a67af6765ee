from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgetrain.graph.ir import Phase, Role, TrainGraph
from edgetrain.graph.traffic import Traffic
from edgetrain.planner.explain import explain, gap_text
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, random_graph, tensor, unit_costs

FAST_STORAGE = Storage(
    read_bytes_per_s=1e9, write_bytes_per_s=1e9, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)


def labelled() -> TrainGraph:
    return graph_of(
        [
            tensor("x", 64, Role.INPUT),
            tensor("table", 128, Role.CONSTANT),
            tensor("w", 192, Role.PARAMETER),
            tensor("momentum", 256, Role.STATE),
            tensor("loss", 4, Role.OUTPUT),
            tensor("hidden", 1024),
            tensor("gradient", 2048),
        ],
        [
            op("forward", ("x", "w", "table"), ("hidden",)),
            op("loss", ("hidden",), ("loss",), Phase.LOSS),
            op("backward", ("hidden",), ("gradient",), Phase.BACKWARD, scratch_bytes=(512,)),
            op("update", ("gradient", "w", "momentum"), ("w", "momentum"), Phase.UPDATE),
        ],
    )


def test_bytes_at_the_peak_are_told_apart_by_who_holds_them() -> None:
    graph = labelled()
    found = explain(graph, make_plan(graph, Budget(), {"step": unit_costs(graph)}))
    assert found.bytes_by_label == {
        "parameters": 192,
        "state": 256,
        "constants": 128,
        "inputs": 64,
        "outputs": 64,
        "activations": 1024,
        "gradients": 2048,
        "scratch": 512,
    }
    assert (found.peak_function, found.peak_op, found.fragmentation_bytes) == ("step", "backward", 0)
    assert dict(found.biggest) == {"gradient": 2048, "hidden": 1024}


@pytest.mark.parametrize("seed", range(6))
def test_labels_and_fragmentation_add_up_to_the_peak(seed: int) -> None:
    graph = random_graph(seed, forward_ops=30)
    costs = {"step": unit_costs(graph)}
    full = make_plan(graph, Budget(), costs).peak_bytes
    plan = make_plan(graph, Budget(memory_bytes=Bytes(int(0.7 * full))), costs)
    found = explain(graph, plan)
    assert sum(found.bytes_by_label.values()) + found.fragmentation_bytes == plan.peak_bytes
    assert found.fragmentation_bytes >= 0
    assert found.recomputed
    assert found.slowdown is not None
    assert found.slowdown > 1.0


def test_a_plan_made_for_more_memory_does_not_fit_less() -> None:
    graph = chain(6)
    plan = make_plan(graph, Budget(), {"step": unit_costs(graph)})
    tight = explain(graph, replace(plan, budget=Budget(memory_bytes=Bytes(plan.peak_bytes - 1))))
    exact = explain(graph, replace(plan, budget=Budget(memory_bytes=Bytes(plan.peak_bytes))))
    assert (tight.fits, exact.fits, explain(graph, plan).fits) == (False, True, True)
    assert "DOES NOT FIT" in tight.to_text()


def test_paged_tensors_are_listed() -> None:
    graph = random_graph(2, forward_ops=8, unit_bytes=4096)
    costs = {"step": unit_costs(graph)}
    tight = Budget(memory_bytes=Bytes(3 * make_plan(graph, Budget(), costs).peak_bytes // 4))
    found = explain(graph, make_plan(graph, tight, costs, storage=FAST_STORAGE))
    assert found.paged
    assert set(found.paged) <= set(graph.tensors)
    assert f"paged: {len(found.paged)} tensors" in found.to_text()


def test_the_text_is_one_screen() -> None:
    graph = labelled()
    budget = Budget(memory_bytes=Bytes(5000))
    plan = make_plan(graph, budget, {"step": unit_costs(graph)})
    assert explain(graph, plan).to_text() == (
        "fits: peak 4.288kB (4.188KiB) of 5kB (4.883KiB): 85.8%\n"
        "\n"
        "memory at the peak, op `backward` (no source) in step:\n"
        "  parameters         192B   4.5% █\n"
        "  state              256B   6.0% ██\n"
        "  constants          128B   3.0% █\n"
        "  inputs              64B   1.5%\n"
        "  outputs             64B   1.5%\n"
        "  activations     1.024kB  23.9% ███████\n"
        "  gradients       2.048kB  47.8% ██████████████\n"
        "  scratch            512B  11.9% ████\n"
        "  fragmentation        0B   0.0%\n"
        "  largest temporaries: `gradient` (backward) 2.048kB, `hidden` (forward) 1.024kB\n"
        "\n"
        "one step: 4.0 s, 4 J (modelled), 526 µg CO2 at 473 g/kWh\n"
        "slowdown: 1.00x against keeping everything, which needs 4.288kB\n"
        "recomputed: 0 runs of 0 ops\n"
        "paged: 0 tensors\n"
        "solver: greedy, nothing to decide: everything is kept\n"
    )


def test_what_a_step_moves_is_told_where_it_was_counted() -> None:
    graph = labelled()
    plan = make_plan(graph, Budget(), {"step": unit_costs(graph)})
    found = explain(graph, plan, traffic=Traffic(moved_bytes=3000, unfused_bytes=8000))
    assert "\ntraffic: moves 3kB a step, 8kB before fusion\n" in found.to_text()
    assert json.loads(found.to_json())["traffic"] == {"moved_bytes": 3000, "unfused_bytes": 8000}
    assert "traffic" not in explain(graph, plan).to_text()


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (None, "no bound"),
        (0.0, "proven to be the least possible"),
        (0.0031, "proven within 0.31 % of the least possible"),
    ],
)
def test_what_is_proven_is_said_in_words(gap: float | None, text: str) -> None:
    assert gap_text(gap) == text


def test_an_exact_plan_says_how_far_it_is_from_the_least_possible() -> None:
    graph = chain(8)
    costs = {"step": unit_costs(graph)}
    tight = Budget(memory_bytes=Bytes(7 * make_plan(graph, Budget(), costs).peak_bytes // 10))
    exact, quick = (make_plan(graph, tight, costs, solver=solver) for solver in ("milp", "greedy"))
    assert exact.gap is not None
    assert quick.gap is not None
    assert 0.0 <= exact.gap <= quick.gap
    assert exact.keep_all_seconds is not None
    assert quick.gap == pytest.approx(1 - exact.keep_all_seconds / quick.seconds)  # every op runs once at least
    assert "solver: milp, proven" in explain(graph, exact).to_text()
    assert "solver: greedy, proven within" in explain(graph, quick).to_text()


def test_the_json_holds_every_number() -> None:
    graph = labelled()
    found = explain(graph, make_plan(graph, Budget(), {"step": unit_costs(graph)}))
    data = json.loads(found.to_json())
    assert data["format"] == "edgetrain.explanation/1"
    assert data["peak_bytes"] == found.peak_bytes
    assert data["bytes_by_label"] == found.bytes_by_label
