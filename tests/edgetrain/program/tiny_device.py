"""The tiny program for a GPU: its kernels written by hand, so that no compiler of kernels is needed."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.compiler.device_code import DeviceCode, Launch
from edgetrain.graph.ir import TrainGraph
from edgetrain.graph.persistent import layout_persistent
from edgetrain.planner.plan import Plan
from edgetrain.program.artifact import Artifact, write_artifact
from edgetrain.program.emit_launches import emit_launching_driver, emit_source
from edgetrain.program.library import build_device_library
from edgetrain.targets.device import Gpu
from edgetrain.targets.opencl import find_opencl
from tests.edgetrain.processors import processor
from tests.edgetrain.program.tiny_program import COUNT, STEP_PLANS, host_compiler, initial_values, tiny_graph, tiny_plan

ALIGNMENT_BYTES = 512
GPU = Gpu(api="opencl", alignment_bytes=ALIGNMENT_BYTES, group_threads=256, local_bytes=16384)
INSTALL = "apt-get install pocl-opencl-icd"


@functools.cache
def _missing() -> str:
    return find_opencl().why


def require_device() -> None:
    """Skips where there is no OpenCL device."""
    if _missing():
        pytest.skip(f"{_missing()}: `{INSTALL}`")


def device_graph() -> TrainGraph:
    return replace(tiny_graph(), alignment_bytes=ALIGNMENT_BYTES)


def device_plan(name: str = "keep") -> Plan:
    """The tiny plan of that name, with what outlives a call where a GPU needs it."""
    layout = layout_persistent(device_graph())
    plan = tiny_plan(STEP_PLANS[name])
    return replace(plan, persistent_offsets=layout.offsets, persistent_bytes=layout.nbytes)


def tiny_code() -> DeviceCode:
    def launch(function: str, *arguments: int, threads: int = COUNT) -> Launch:
        groups = -(-threads // 64)
        return Launch(
            function=function, arguments=arguments, groups=(groups, 1, 1), threads=(64 if threads > 1 else 1, 1, 1)
        )

    return DeviceCode(
        source=Path(__file__).with_name("tiny_kernels.cl").read_text(encoding="utf-8"),
        launches={
            "tiny_multiply": (launch("multiply", 0, 1, 2),),
            "tiny_square": (launch("copy", 0, 2), launch("square", 1, 0, 2)),
            "tiny_sum": (launch("sum", 0, 1, threads=1),),
            "tiny_gradient": (launch("gradient", 0, 1, 2),),
            "tiny_update": (launch("update", 0, 1, 3),),
        },
    )


def build_tiny_for_gpu(
    directory: Path, plan: Plan, *, profile: bool = False, code: DeviceCode | None = None
) -> Artifact:
    """Compiles the driver and writes the artifact `directory/program`."""
    code = code or tiny_code()
    driver = emit_launching_driver(device_graph(), plan, code)
    library = build_device_library(
        driver_c=driver,
        source_c=emit_source(code),
        out=directory / "library",
        profile=profile,
        compiler=host_compiler(),
    )
    return write_artifact(
        directory / "program",
        graph=device_graph(),
        plan=plan,
        library=library,
        driver_c=driver,
        device_source=code.source,
        parameters=initial_values(),
        target_name="opencl",
        codegen=processor(),
        gpu=GPU,
        versions={"compiler": host_compiler().version},
    )
