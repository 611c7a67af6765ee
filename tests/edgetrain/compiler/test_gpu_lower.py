"""Kernels as OpenCL C and launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from edgetrain.errors import UnsupportedError
from edgetrain.targets.device import Gpu

pytestmark = pytest.mark.compile

GPU = Gpu(api="opencl", alignment_bytes=512, group_threads=256, local_bytes=16384)


@pytest.fixture(scope="module")
def extracted() -> Any:
    from edgetrain.graph.build import build_step
    from edgetrain.graph.extract import extract
    from edgetrain.graph.options import OptimizerOptions, TrainOptions
    from edgetrain.model.importer import import_model
    from edgetrain.model.zoo import build_zoo_model

    model = import_model(build_zoo_model("digits-cnn-bn"), name="digits", batch=4, shapes={}, output="")
    return extract(build_step(model, TrainOptions(batch=4, optimizer=OptimizerOptions(kind="adam"))), "digits")


@pytest.fixture(scope="module")
def lowered(extracted: Any) -> Any:
    from edgetrain.compiler.gpu_lower import lower_for_gpu

    return lower_for_gpu(extracted, GPU)


def pointers_of(lowered: Any) -> Mapping[str, int]:
    """How many pointers each kernel is called with."""
    graph = lowered.lowered.graph
    ops = (op for ops in graph.functions.values() for op in ops)
    return {op.kernel: len(op.reads) + len(op.writes) + len(op.scratch_bytes) for op in ops}


def test_every_kernel_is_launches_of_functions_that_the_source_has(lowered: Any) -> None:
    pointers = pointers_of(lowered)
    assert pointers.keys() == lowered.code.launches.keys()
    named = [launch.function for launches in lowered.code.launches.values() for launch in launches]
    assert len(set(named)) == len(named)
    for symbol, launches in lowered.code.launches.items():
        assert launches
        for launch in launches:
            assert f" {launch.function}(" in lowered.code.source
            assert all(0 <= position < pointers[symbol] for position in launch.arguments)


def test_all_that_a_kernel_writes_is_given_to_a_launch(lowered: Any) -> None:
    for op in lowered.lowered.graph.functions["step"]:
        given = {position for launch in lowered.code.launches[op.kernel] for position in launch.arguments}
        assert set(range(len(op.reads), len(op.reads) + len(op.writes))) <= given, op.name


def test_no_group_has_more_threads_than_the_device(extracted: Any) -> None:
    from edgetrain.compiler.gpu_lower import lower_for_gpu

    for threads in (256, 64):
        found = lower_for_gpu(extracted, replace(GPU, group_threads=threads))
        for launches in found.code.launches.values():
            assert all(math.prod(launch.threads) <= threads for launch in launches)


def test_no_group_shares_more_memory_than_the_device_has(extracted: Any, lowered: Any) -> None:
    from edgetrain.compiler.gpu_lower import lower_for_gpu

    assert "__local " in lowered.code.source
    assert "__local " not in lower_for_gpu(extracted, replace(GPU, local_bytes=4)).code.source


def test_the_same_kernels_give_the_same_code(extracted: Any, lowered: Any) -> None:
    from edgetrain.compiler.gpu_lower import lower_for_gpu

    again = lower_for_gpu(extracted, GPU)
    assert again.code == lowered.code
    assert again.lowered.choices == lowered.lowered.choices


def test_the_graph_has_the_device_s_alignment_and_the_kernels_scratch(lowered: Any) -> None:
    graph = lowered.lowered.graph
    assert graph.alignment_bytes == GPU.alignment_bytes
    assert any(op.scratch_bytes for op in graph.functions["step"])


def test_kernels_that_nothing_can_launch_are_named_with_the_reasons(
    extracted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgetrain.compiler import gpu_lower

    monkeypatch.setattr(gpu_lower, "_RULES", {"dlight-matmul": gpu_lower._RULES["dlight-matmul"]})
    with pytest.raises(UnsupportedError, match="no schedule for opencl fits") as caught:
        gpu_lower.lower_for_gpu(extracted, GPU)
    unmatched = next(kernel.symbol for kernel in extracted.kernels if "max_pool2d" in kernel.symbol)
    assert f"`{unmatched}` (made from " in caught.value.why
    assert "no rule knows a kernel of this kind" in caught.value.why


def test_a_schedule_that_leaves_work_to_the_host_is_refused(extracted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that binds no loop to threads; with another rule behind it, the kernel is that one's."""
    from edgetrain._tvm import s_tir
    from edgetrain.compiler import gpu_lower

    class Unbound:
        def apply(self, function: Any, _target: Any, _tunable: bool) -> Any:
            return s_tir.Schedule(function)

    one = replace(extracted, kernels=extracted.kernels[:1])
    monkeypatch.setattr(gpu_lower, "_RULES", {"unbound": Unbound})
    with pytest.raises(UnsupportedError, match="fits 1 of 1 kernels") as caught:
        gpu_lower.lower_for_gpu(one, GPU)
    assert "unbound: " in caught.value.why
    assert "no rule knows" not in caught.value.why
