"""The process that fuzzes one reader: `python -m tests.fuzz.child READER GROWTH_MB FINDINGS [libFuzzer's flags]`.

An exception is written down with its input, once for each place that raises it, and fuzzing goes on. What native code
does ends the process: libFuzzer leaves the input.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from random import Random

from tests.fuzz.harness import Harness, harness_of

# The package, and of what it reads with only what is small: instrumented code is several times slower.
_INSTRUMENTED = [
    "edgetrain",
    "edgetrain_tuner",
    "tomllib",
    "wave",
    "pickletools",
    "email",
    "html.parser",
    "http.server",
    "PIL",
]


def main(name: str, growth_mb: str, findings: str, *flags: str) -> None:
    import atheris

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for opcode in {*pickle._Unpickler.dispatch.values()}:  # imported long ago, by atheris itself
        atheris.instrument_func(opcode)
    with atheris.instrument_imports(include=_INSTRUMENTED):
        harness = harness_of(name)
        for path in harness.inputs:  # what is imported on the way is instrumented, too
            _tried(harness, path.read_bytes(), Path(findings))
    limit_mb = _resident_mb() + int(growth_mb)
    settings = [sys.argv[0], f"-rss_limit_mb={limit_mb}", *flags]
    if harness.words:
        settings.append(f"-dict={_dictionary(harness.words)}")

    def one_input(data: bytes) -> None:
        _tried(harness, data, Path(findings))

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        assert harness.mutate is not None
        room = max(64, min(most, len(data) + 256))
        return harness.mutate(data, Random(seed), lambda part: bytes(atheris.Mutate(part[:room], room)))[:most]

    if harness.mutate is None:
        atheris.Setup(settings, one_input)
    else:
        atheris.Setup(settings, one_input, custom_mutator=mutated)
    atheris.Fuzz()


def _tried(harness: Harness, data: bytes, findings: Path) -> None:
    try:
        harness.one_input(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # also panics of Rust, which are no `Exception`
        _keep(error, data, findings)


def _keep(error: BaseException, data: bytes, findings: Path) -> None:
    """Writes input and traceback, unless there is one of the same kind from the same place."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "edgetrain" in frame.filename] or [
        *traceback.extract_tb(error.__traceback__)
    ]
    place = "|".join(f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames[-2:])
    key = hashlib.sha256(f"{type(error).__name__}|{place}".encode()).hexdigest()[:12]
    path = findings / f"error-{key}"
    if not path.exists():
        findings.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{path.name}.txt").write_text(
            "".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace"
        )
        path.write_bytes(data)


def _resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def _dictionary(words: tuple[bytes, ...]) -> Path:
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words if word]
    handle, name = tempfile.mkstemp(suffix=".dict")
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write("\n".join(lines) + "\n")
    return Path(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
