"""Machines for tests: rules take kernels of any size there, so that the kernels can be small."""

from __future__ import annotations

from dataclasses import replace

from edgetrain_tuner.machine import Machine


def eager(machine: Machine) -> Machine:
    """The machine for which no kernel is too small, and Winograd's algorithm always the faster one."""
    thresholds = replace(
        machine.thresholds,
        packed_multiply_adds=0,
        window_multiply_adds=0,
        winograd_multiply_adds=0,
        winograd_speedup=0.0,
        parallel_multiply_adds=0,
        parallel_iterations=0,
    )
    return replace(machine, thresholds=thresholds)


def roomy(machine: Machine) -> Machine:
    """An eager machine on which Winograd's scratch may be larger than what a small kernel reads."""
    limits = replace(machine.limits, winograd_scratch_share=float(1 << 20))
    return replace(eager(machine), limits=limits)
