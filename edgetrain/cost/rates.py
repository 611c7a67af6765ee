"""Rates of a device, fitted to the measured times of its kernels: the inverse of the roofline in `analytic.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgetrain.cost.analytic import call_seconds
from edgetrain.targets.device import Rates

_MOST_ROUNDS = 50  # it settles in a few


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kernel call: its arithmetic, its traffic, and what it took."""

    flops: int
    moved_bytes: int
    seconds: float


def total_seconds(rates: Rates, kernels: Sequence[KernelTime]) -> float:
    """What the roofline says of all these kernels together."""
    return sum(call_seconds(rates, kernel.flops, kernel.moved_bytes) for kernel in kernels)


def _is_bound_by_arithmetic(rates: Rates, kernel: KernelTime) -> bool:
    return kernel.flops / rates.flops_per_s > kernel.moved_bytes / rates.memory_bytes_per_s


def fit_rates(programs: Mapping[str, Sequence[KernelTime]], start: Rates) -> Rates:
    """`start` with the rates under which the roofline adds up to what was measured.

    The launch is what the quickest kernel took. The rate of arithmetic is that of all kernels together which are
    bound by it, the rate of memory that of all the others; which is which depends on the rates, so this is repeated
    until it settles. Every program counts the same, however long it takes. The same times give the same rates.
    """
    weighted = [(kernel, weight) for kernels in programs.values() for kernel, weight in _of_equal_weight(kernels)]
    launch_s = min((kernel.seconds for kernel, _ in weighted), default=start.launch_s)
    rates = replace(start, launch_s=launch_s)
    for _ in range(_MOST_ROUNDS):
        work = {True: 0.0, False: 0.0}  # flops of those bound by arithmetic, bytes of the others
        busy_s = {True: 0.0, False: 0.0}
        for kernel, weight in weighted:
            by_arithmetic = _is_bound_by_arithmetic(rates, kernel)
            work[by_arithmetic] += weight * (kernel.flops if by_arithmetic else kernel.moved_bytes)
            busy_s[by_arithmetic] += weight * (kernel.seconds - launch_s)
        found = replace(
            rates,
            flops_per_s=work[True] / busy_s[True] if work[True] and busy_s[True] else rates.flops_per_s,
            memory_bytes_per_s=work[False] / busy_s[False]
            if work[False] and busy_s[False]
            else rates.memory_bytes_per_s,
        )
        if found == rates:
            break
        rates = found
    return rates


def _of_equal_weight(kernels: Sequence[KernelTime]) -> list[tuple[KernelTime, float]]:
    total_s = sum(kernel.seconds for kernel in kernels)
    return [(kernel, 1 / total_s) for kernel in kernels] if total_s else []
