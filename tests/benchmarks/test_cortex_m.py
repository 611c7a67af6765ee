"""The Cortex-M benchmark's own parts: kernels by family, and what a row adds up."""

from __future__ import annotations

import pytest

from benchmarks.cortex_m import SCHEDULED, TOTAL, UNSCHEDULED, Counted, family, rows_of
from edgetrain.graph.ir import Op, Phase, TrainGraph


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("k1_fused_conv2d1_add1_relu1", "conv2d_add_relu"),
        ("k18_conv2d_weight_gradient", "conv2d_weight_gradient"),
        ("k11_update1", "update"),
        ("k2_max_pool2d", "max_pool2d"),
    ],
)
def test_a_family_is_the_kernel_without_its_numbers(kernel: str, expected: str) -> None:
    assert family(kernel) == expected


def test_rows_add_up_the_calls_of_a_family_and_each_kernels_code_once() -> None:
    kernels = ("k0_update", "k1_update1", "k1_update1", "k2_sum")
    ops = tuple(
        Op(name=str(n), kernel=kernel, reads=(), writes=(), phase=Phase.FORWARD) for n, kernel in enumerate(kernels)
    )
    graph = TrainGraph(name="g", tensors={}, functions={"step": ops})
    flash = {"k0_update": 100, "k1_update1": 50, "k2_sum": 8}

    def counted(*instructions: int) -> Counted:
        return Counted(losses=(), instructions=instructions, flash_bytes=flash, arena_bytes=64, graph=graph)

    both = {UNSCHEDULED: counted(10, 20, 30, 40), SCHEDULED: counted(5, 10, 15, 20)}
    rules = {"k0_update": "generic", "k1_update1": "generic", "k2_sum": "register-tile"}
    whole, update, total = rows_of("cortex-m4", both, rules)
    assert (whole["family"], update["family"], total["family"]) == (TOTAL, "update", "sum")
    assert (update["calls"], update["scheduled_instructions"], update["scheduled_flash_bytes"]) == (3, 30, 150)
    assert (update["ratio"], update["share"]) == (0.5, 0.6)
    assert (whole["ratio"], whole["scheduled_arena_bytes"], whole["rules"]) == (0.5, 64, "generic, register-tile")
