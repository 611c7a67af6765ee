"""Scheduled kernels as emulated devices compute them, against NumPy: all of a device's kernels in one executable."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edgetrain.compiler.tuner_view import machine_of
from edgetrain.files.build_cache import BuildCache, cache_key
from edgetrain.targets.device import Codegen
from edgetrain.targets.profile import load_target
from edgetrain_tuner.machine import Machine
from tests.edgetrain.compiler.emulated_kernels import Computed, Device, compute_all
from tests.edgetrain.compiler.kernel_case import KernelCase
from tests.edgetrain.compiler.norm_cases import norm_cases
from tests.edgetrain.compiler.row_cases import row_cases
from tests.edgetrain.compiler.update_cases import update_cases
from tests.edgetrain.compiler.window_cases import window_cases
from tests.edgetrain.processors import processor
from tests.edgetrain_tuner.machines import eager

pytestmark = pytest.mark.compile

# Each in a size that divides by the widths of registers and in one that divides by nothing.
CASES = (*row_cases(), *window_cases(), *norm_cases(), *update_cases())
# For devices that differ from one that computes all of them in the code generator alone.
FEW = (
    "matmul nn",
    "convolution 3 x 3, prime",
    "convolution stride 2, prime",
    "convolution data gradient and clip, prime",
    "depthwise 3 x 3 stride 1, prime",
    "pool, maximum, prime",
    "softmax, prime",
    "layer norm, prime",
    "update in place, prime",
)
# On threads: what rules share out, each in its own way.
SHARED = (*FEW, "convolution data gradient", "depthwise", "batch norm")
USER, BOARD = ("qemu-aarch64-static", "qemu-user-static"), ("qemu-system-arm", "qemu-system-arm")


def _of_profile(name: str, *, cores: int = 1) -> tuple[Machine, Codegen]:
    """What a target's profile says, for so many cores."""
    codegen = dataclasses.replace(load_target(name).device.codegen, cores=cores)
    return machine_of(codegen), codegen


def _device(name: str, described: tuple[Machine, Codegen], emulator: tuple[str, str], *options: str) -> Device:
    machine, codegen = described
    return Device(
        name=name,
        machine=eager(machine),
        codegen=codegen,
        emulator=emulator[0],
        package=emulator[1],
        options=options,
        is_board=emulator is BOARD,
    )


_SVE = processor("aarch64-linux-gnu", "neoverse-v1", "+sve")
_MVE = processor("thumbv8.1m.main-none-eabihf", "cortex-m55")
DEVICES: Mapping[str, Device] = {
    device.name: device
    for device in (
        _device("aarch64", _of_profile("raspberry-pi-4"), USER),
        _device("aarch64, two cores", _of_profile("raspberry-pi-4", cores=2), USER),
        _device("cortex-m4", _of_profile("cortex-m4"), BOARD),
        _device("cortex-m7", _of_profile("cortex-m7"), BOARD),
        # Vectors of an unknown number of lanes, as LLVM makes them of loops, here of eight.
        _device(
            "sve", (Machine(vector_bits=128, vector_registers=32, cores=1), _SVE), USER, "-cpu", "max,sve-max-vq=2"
        ),
        _device("mve", (Machine(vector_bits=128, vector_registers=8, cores=1), _MVE), BOARD),
    )
}
WHOLE = ("aarch64", "cortex-m4")


def _cases_of(device: Device) -> list[KernelCase]:
    some = SHARED if device.machine.cores > 1 else FEW
    return [
        case
        for case in CASES
        if (device.name in WHOLE or case.name.startswith(some)) and not (device.is_board and case.needs_libm)
    ]


def _keep(computed: Computed, folder: Path) -> None:
    arrays = {f"{n}-{m}": array for n, outputs in enumerate(computed.outputs) for m, array in enumerate(outputs)}
    np.savez(folder / "outputs.npz", **arrays)  # type: ignore[arg-type]  # NumPy's stub takes flags for arrays
    (folder / "rules.json").write_text(json.dumps(computed.rules))


def _kept(folder: Path, cases: list[KernelCase]) -> Computed:
    with np.load(folder / "outputs.npz") as arrays:
        outputs = [tuple(arrays[f"{n}-{m}"] for m in range(case.outputs)) for n, case in enumerate(cases)]
    return Computed(rules=tuple(json.loads((folder / "rules.json").read_text())), outputs=tuple(outputs))


@pytest.fixture(scope="module")
def so_far() -> dict[str, Computed]:
    """What devices have computed: each runs once, and what one process of the session has, the others find."""
    return {}


def _computed(device: Device, so_far: dict[str, Computed], cache: BuildCache, folder: Path) -> Computed:
    emulator = shutil.which(device.emulator)
    if emulator is None:
        pytest.skip(f"needs {device.emulator}: apt-get install {device.package}")
    cases = _cases_of(device)

    def build(out: Path) -> None:
        _keep(compute_all(cases, device, emulator, folder), out)

    if device.name not in so_far:
        so_far[device.name] = _kept(cache.put(cache_key("emulated kernels", device.name), build), cases)
    return so_far[device.name]


@pytest.mark.parametrize(
    ("device", "case"),
    [
        pytest.param(device, case, id=f"{device.name}: {case.name}")
        for device in DEVICES.values()
        for case in _cases_of(device)
    ],
)
def test_a_kernel_is_written_by_its_rule_and_computes_what_numpy_does(
    device: Device, case: KernelCase, so_far: dict[str, Computed], build_cache: BuildCache, tmp_path: Path
) -> None:
    found = _computed(device, so_far, build_cache, tmp_path)
    number = [c.name for c in _cases_of(device)].index(case.name)
    assert found.rules[number] == case.rule_on(lanes=device.machine.lanes, cores=device.machine.cores)
    for array, answer in zip(found.outputs[number], case.answers(), strict=True):
        limit = case.tolerance * np.abs(answer).max()
        np.testing.assert_allclose(array, answer, rtol=case.relative, atol=limit)
