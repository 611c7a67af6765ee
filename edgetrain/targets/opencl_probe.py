"""Asks the system's OpenCL library for the device that programs run on, and prints the answer as one line of JSON.

Run as `python -m edgetrain.targets.opencl_probe`. It chooses as `runtime/opencl.c` does: the first GPU of any platform,
else the first device.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator

_LIBRARIES = ("libOpenCL.so.1", "libOpenCL.so")
_MOST = 16  # platforms, and devices of a platform
_TYPE_GPU, _TYPE_ALL = 1 << 2, 0xFFFFFFFF
_PLATFORM_NAME = 0x0902
_DEVICE_NAME, _DRIVER_VERSION = 0x102B, 0x102D
_MEMORY_BYTES, _BUFFER_BYTES = 0x101F, 0x1010


def main() -> int:
    try:
        answer: dict[str, object] = _describe()
    except LookupError as error:
        answer = {"why": str(error.args[0])}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _describe() -> dict[str, object]:
    """Raises `LookupError` with the reason where there is no device."""
    library = _library()
    for kind in (_TYPE_GPU, _TYPE_ALL):
        for platform, device in _devices(library, kind):
            platform_name = _text(library.clGetPlatformInfo, platform, _PLATFORM_NAME)
            version = _text(library.clGetDeviceInfo, device, _DRIVER_VERSION)
            return {
                "name": _text(library.clGetDeviceInfo, device, _DEVICE_NAME),
                "driver": f"{platform_name} {version}",
                "memory_bytes": _number(library.clGetDeviceInfo, device, _MEMORY_BYTES),
                "buffer_bytes": _number(library.clGetDeviceInfo, device, _BUFFER_BYTES),
            }
    raise LookupError("the OpenCL library knows no device: no driver is installed that it can use")


def _library() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LookupError(f"there is no OpenCL library: none of {', '.join(_LIBRARIES)} can be loaded")


def _devices(library: ctypes.CDLL, kind: int) -> Iterator[tuple[ctypes.c_void_p, ctypes.c_void_p]]:
    platforms, count = (ctypes.c_void_p * _MOST)(), ctypes.c_uint(0)
    if library.clGetPlatformIDs(_MOST, platforms, ctypes.byref(count)) != 0:
        return
    for platform in platforms[: min(count.value, _MOST)]:
        devices, found = (ctypes.c_void_p * _MOST)(), ctypes.c_uint(0)
        arguments = (ctypes.c_void_p(platform), ctypes.c_uint64(kind), _MOST, devices, ctypes.byref(found))
        if library.clGetDeviceIDs(*arguments) == 0:
            for device in devices[: min(found.value, _MOST)]:
                yield ctypes.c_void_p(platform), ctypes.c_void_p(device)


def _text(ask: ctypes._NamedFuncPointer, of: ctypes.c_void_p, what: int) -> str:
    answer = ctypes.create_string_buffer(1024)
    ask(of, what, ctypes.c_size_t(len(answer)), answer, None)
    return answer.value.decode(errors="replace").strip()


def _number(ask: ctypes._NamedFuncPointer, of: ctypes.c_void_p, what: int) -> int:
    answer = ctypes.c_uint64(0)
    ask(of, what, ctypes.c_size_t(8), ctypes.byref(answer), None)
    return answer.value


if __name__ == "__main__":
    sys.exit(main())
