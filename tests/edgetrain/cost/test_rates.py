from __future__ import annotations

import random
from dataclasses import replace

import pytest

from edgetrain.cost.analytic import call_seconds
from edgetrain.cost.rates import KernelTime, fit_rates, total_seconds
from edgetrain.targets.device import Rates

TRUE = Rates(flops_per_s=50e9, memory_bytes_per_s=5e9, launch_s=2e-6, joules_per_flop=0.0, joules_per_byte=0.0)
START = Rates(flops_per_s=200e9, memory_bytes_per_s=1e9, launch_s=1e-7, joules_per_flop=0.0, joules_per_byte=0.0)


def program(rates: Rates, seed: int, *, noise: float = 0.0) -> list[KernelTime]:
    """Kernels of all sizes, one of next to nothing among them, that take what `rates` say, more or less."""
    rng = random.Random(seed)
    works = [(0, 64), *((int(10 ** rng.uniform(3, 8)), int(10 ** rng.uniform(3, 7))) for _ in range(40))]
    kernels = [KernelTime(flops=flops, moved_bytes=nbytes, seconds=0.0) for flops, nbytes in works]
    return [
        replace(k, seconds=call_seconds(rates, k.flops, k.moved_bytes) * (1 + noise * rng.uniform(-1, 1)))
        for k in kernels
    ]


@pytest.mark.parametrize("seed", range(5))
def test_rates_that_made_the_times_are_found_again(seed: int) -> None:
    found = fit_rates({"a": program(TRUE, seed), "b": program(TRUE, seed + 100)}, START)
    assert found.flops_per_s == pytest.approx(TRUE.flops_per_s, rel=0.01)
    assert found.memory_bytes_per_s == pytest.approx(TRUE.memory_bytes_per_s, rel=0.01)
    assert found.launch_s == pytest.approx(TRUE.launch_s, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_with_noisy_times_the_totals_still_agree(seed: int) -> None:
    programs = {name: program(TRUE, seed + offset, noise=0.3) for name, offset in (("a", 0), ("b", 100))}
    found = fit_rates(programs, START)
    for kernels in programs.values():
        assert total_seconds(found, kernels) == pytest.approx(sum(k.seconds for k in kernels), rel=0.25)


def test_a_long_program_does_not_drown_a_short_one() -> None:
    launch = KernelTime(flops=0, moved_bytes=64, seconds=1e-9)
    slow = [launch, KernelTime(flops=10**9, moved_bytes=64, seconds=1.0)]  # 1 GFLOP/s
    quick = [launch, KernelTime(flops=10**6, moved_bytes=64, seconds=1e-4)]  # 10 GFLOP/s
    assert fit_rates({"slow": slow, "quick": quick}, START).flops_per_s == pytest.approx(5.5e9, rel=0.01)


def test_a_rate_of_which_nothing_was_seen_stays() -> None:
    found = fit_rates({"a": [KernelTime(flops=10**9, moved_bytes=4, seconds=s) for s in (0.1, 0.2)]}, START)
    assert found.memory_bytes_per_s == START.memory_bytes_per_s
    assert fit_rates({}, START) == START
