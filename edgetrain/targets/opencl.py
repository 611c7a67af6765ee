"""Which OpenCL device is here, asked in a process of its own: a broken driver may crash whoever loads it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from edgetrain.errors import DeviceError

INSTALL = "install the OpenCL driver of your GPU, or one for the processor with `apt-get install pocl-opencl-icd`"
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenclDevice:
    """What a device and its driver say of themselves."""

    name: str
    driver: str  # the platform's name and the driver's version
    memory_bytes: int
    buffer_bytes: int  # the most that one buffer can have


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenclSearch:
    """The device that programs run on, or why there is none."""

    device: OpenclDevice | None = None
    why: str = ""


def find_opencl() -> OpenclSearch:
    """Asks the driver; nothing is kept, for a driver may be installed in between."""
    command = [sys.executable, "-P", "-m", "edgetrain.targets.opencl_probe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        answer = json.loads(done.stdout)
        return OpenclSearch(why=answer["why"]) if "why" in answer else OpenclSearch(device=OpenclDevice(**answer))
    except subprocess.TimeoutExpired:
        return OpenclSearch(why=f"the OpenCL driver did not answer within {_TIMEOUT_S} seconds")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return OpenclSearch(why=f"the OpenCL driver could not be asked: {error}")


def require_opencl() -> OpenclDevice:
    """Raises `DeviceError` where there is none."""
    found = find_opencl()
    if found.device is None:
        raise DeviceError("there is no OpenCL device on this machine", why=found.why, fix=INSTALL)
    return found.device
