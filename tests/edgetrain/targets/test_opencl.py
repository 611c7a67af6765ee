"""Which OpenCL device is found, and what its target is completed with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from edgetrain.cli.entry import main
from edgetrain.errors import DeviceError
from edgetrain.targets import opencl, opencl_probe
from edgetrain.targets.host import HostFacts, Isa
from edgetrain.targets.opencl import OpenclDevice, OpenclSearch, find_opencl, require_opencl
from edgetrain.targets.profile import complete_gpu, load_target
from tests.edgetrain.program.tiny_device import require_device

FACTS = HostFacts(
    isa=Isa(cpu="x86-64-v3", features="", vector_bits=256, vector_registers=16), cores=4, memory_bytes=8 * 10**9
)
FOUND = OpenclDevice(name="Mali-G78", driver="ARM 1.0", memory_bytes=8 * 10**9, buffer_bytes=2 * 10**9)


def answering(monkeypatch: pytest.MonkeyPatch, stdout: str) -> None:
    def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout, "")

    monkeypatch.setattr(subprocess, "run", run)


def test_a_device_is_found_with_its_driver_and_memory() -> None:
    require_device()
    found = require_opencl()
    assert found.name
    assert found.driver
    assert 0 < found.buffer_bytes <= found.memory_bytes


def test_without_a_driver_the_search_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    found = find_opencl()
    assert found.device is None
    assert "OpenCL library" in found.why


def test_without_a_library_the_probe_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opencl_probe, "_LIBRARIES", ("libNoSuchOpenCL.so.1",))
    assert opencl_probe.main() == 0
    why = json.loads(capsys.readouterr().out)["why"]
    assert why == "there is no OpenCL library: none of libNoSuchOpenCL.so.1 can be loaded"


@pytest.mark.parametrize("answer", ["", "nonsense", "{}", "[1]", '{"name": "x"}', "null"])
def test_a_driver_that_ends_its_process_is_no_device(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, answer)
    assert find_opencl().device is None
    with pytest.raises(DeviceError, match="there is no OpenCL device on this machine") as caught:
        require_opencl()
    assert "apt-get install pocl-opencl-icd" in caught.value.fix


def test_a_driver_that_does_not_answer_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired("probe", 60)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not answer" in find_opencl().why


def test_the_target_has_the_device_s_memory_and_this_machine_s_processor() -> None:
    target = complete_gpu(load_target("opencl"), FACTS, FOUND)
    assert target.summary == "Mali-G78, through OpenCL (ARM 1.0)"
    assert target.device.memory_bytes == 2 * 10**9
    assert (target.device.codegen.cpu, target.device.codegen.triple) == ("x86-64-v3", "")
    assert target.sources["memory_bytes"].startswith("detected: ")


def test_without_a_device_the_target_can_be_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgetrain.targets.profile.find_opencl", lambda: OpenclSearch(why="no driver"))
    assert main(["targets", "opencl"]) == 0
    assert capsys.readouterr().out.startswith("opencl: an OpenCL device; none is found on this machine\n")


@pytest.mark.parametrize(
    ("search", "text"),
    [
        (OpenclSearch(device=FOUND), "Mali-G78, ARM 1.0, 8GB (7.451GiB)"),
        (OpenclSearch(why="no driver"), f"no device for --target opencl: {opencl.INSTALL}"),
    ],
)
def test_doctor_tells_of_it(
    search: OpenclSearch, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opencl, "find_opencl", lambda: search)
    monkeypatch.setattr("edgetrain.cli.doctor._EXAMINATIONS", (doctor_opencl(),))
    assert main(["doctor", "--json"]) == 0
    assert [(s["name"], s["is_ok"], s["text"]) for s in json.loads(capsys.readouterr().out)] == [("opencl", True, text)]


def doctor_opencl() -> object:
    from edgetrain.cli import doctor

    return doctor._opencl
