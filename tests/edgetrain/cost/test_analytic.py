from __future__ import annotations

from dataclasses import replace

import pytest

from edgetrain.cost.analytic import analytic_costs, analytic_costs_by_function, read_cost, write_cost
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.targets.device import Rates, Storage

DEVICE = Rates(flops_per_s=1000.0, memory_bytes_per_s=100.0, launch_s=0.5, joules_per_flop=2.0, joules_per_byte=3.0)


def one_op(*, flops: int) -> TrainGraph:
    """Reads 40 bytes, writes 20, uses 64 of scratch: 124 bytes moved."""
    return TrainGraph(
        name="one",
        tensors={
            "x": Tensor(name="x", shape=(10,), dtype="float32", role=Role.INPUT),
            "y": Tensor(name="y", shape=(5,), dtype="float32", role=Role.TEMPORARY),
        },
        functions={
            "step": (
                Op(
                    name="f",
                    kernel="f",
                    reads=("x",),
                    writes=("y",),
                    scratch_bytes=(64,),
                    phase=Phase.FORWARD,
                    flops=flops,
                ),
            )
        },
    )


def test_an_op_with_little_arithmetic_costs_its_memory_traffic_and_launch() -> None:
    assert analytic_costs(one_op(flops=10), "step", DEVICE)["f"].seconds == pytest.approx(1.24 + 0.5)


def test_an_op_with_much_arithmetic_costs_its_flops_and_launch() -> None:
    assert analytic_costs(one_op(flops=5000), "step", DEVICE)["f"].seconds == pytest.approx(5.0 + 0.5)


def test_energy_pays_for_arithmetic_and_traffic_both() -> None:
    assert analytic_costs(one_op(flops=10), "step", DEVICE)["f"].joules == pytest.approx(10 * 2.0 + 124 * 3.0)


def test_every_function_gets_its_costs() -> None:
    graph = one_op(flops=10)
    graph = replace(graph, functions={**graph.functions, "evaluate": graph.functions["step"]})
    costs = analytic_costs_by_function(graph, DEVICE)
    assert {name: set(by_op) for name, by_op in costs.items()} == {"step": {"f"}, "evaluate": {"f"}}


def test_reading_and_writing_storage_have_their_own_rates() -> None:
    storage = Storage(
        read_bytes_per_s=100.0,
        write_bytes_per_s=50.0,
        joules_per_byte_read=0.1,
        joules_per_byte_written=0.4,
        latency_s=0.0,
    )
    assert (read_cost(storage, 200).seconds, write_cost(storage, 200).seconds) == (2.0, 4.0)
    assert (read_cost(storage, 200).joules, write_cost(storage, 200).joules) == pytest.approx((20.0, 80.0))


def test_every_transfer_waits_for_the_storage_before_its_bytes_move() -> None:
    storage = Storage(
        read_bytes_per_s=100.0,
        write_bytes_per_s=50.0,
        joules_per_byte_read=0.1,
        joules_per_byte_written=0.4,
        latency_s=0.5,
    )
    assert (read_cost(storage, 200).seconds, write_cost(storage, 200).seconds) == (2.5, 4.5)
    assert read_cost(storage, 200).joules == pytest.approx(20.0)
