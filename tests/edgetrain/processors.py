"""Processors for tests that compile: this machine's, or any other, with as little said as a test cares for."""

from __future__ import annotations

import dataclasses

from edgetrain.targets.device import Codegen
from edgetrain.targets.profile import HOST, load_target


def processor(triple: str = "", cpu: str = "", features: str = "", *, cores: int = 1) -> Codegen:
    return Codegen(triple=triple, cpu=cpu, features=features, vector_bits=128, vector_registers=16, cores=cores)


def this_processor(*, cores: int = 1) -> Codegen:
    """This machine's, with so many of its cores."""
    return dataclasses.replace(load_target(HOST).device.codegen, cores=cores)
