"""The process that measures schedules: `python -m edgetrain.compiler.measure.process`.

What it compiles may crash or hang: it is kept apart, so that the search goes on.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from edgetrain.compiler.lifetime import end_with_parent
from edgetrain.compiler.quick_start import collect_rarely, do_without_torch
from edgetrain.files.scratch import scratch_folder
from edgetrain.targets.device import Codegen


def main() -> int:
    end_with_parent()  # a candidate that hangs reads no end of input
    # The libraries below print to standard output when they please; the protocol needs a channel of its own.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    hello = json.loads(sys.stdin.readline())
    collect_rarely()
    do_without_torch()
    from edgetrain.compiler.measure.device_bench import DeviceBench
    from edgetrain.compiler.measure.kernel_library import KernelLibrary
    from edgetrain.compiler.measure.runners import Runner
    from edgetrain.compiler.tuner_view import machine_of
    from edgetrain_tuner.measure.bench import Bench
    from edgetrain_tuner.measure.serve import serve

    codegen = Codegen(**hello["codegen"])
    with scratch_folder("measure") as folder:
        machine, threads = machine_of(codegen), hello["threads"]
        if "runner" in hello:
            runner = Runner.from_json(hello["runner"])
            serve(DeviceBench(codegen, machine, runner, threads=threads, folder=Path(folder)), sys.stdin, channel)
            return 0
        library = KernelLibrary(codegen, threads=threads, folder=Path(folder))
        serve(Bench(library.build, machine), sys.stdin, channel)
        library.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
