"""The measuring process does not outlive who started it, whatever it is busy with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

_CHILD = """
import threading
from edgetrain.compiler.measure.process import end_with_parent
end_with_parent()
print("ready", flush=True)
threading.Event().wait()
"""
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_CHILD!r}])"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_process_that_hangs_ends_when_its_parent_is_killed(command_environment: Mapping[str, str]) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True, env=command_environment
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    # The end of the pipe is the end of the child, which holds it open too.
    rest, _ = parent.communicate(timeout=60)
    assert rest == ""
