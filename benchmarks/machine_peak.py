"""Measures the peak arithmetic of this machine: fused multiply-adds on registers, without reading or writing memory.

    python -m benchmarks.machine_peak [--json FILE] [--threads 1,2]

It runs independent chains of operations, enough to hide their latency, in vectors of 16, 32 and 64 bytes. The result is
the best of them over some short runs, because other work on the machine can only lower it.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from benchmarks.measure import show_table, write_json
from edgetrain.toolchain.c_compiler import find_compiler

_LANES = (4, 8, 16)
_CHAINS = 12  # times the latency of an FMA (4 cycles) over two units is 8; more than 16 registers would spill
_ROUNDS = 1_000_000
_RUNS = 100

# The sum is returned: a compiler drops what nobody reads.
_SOURCE = """
typedef float vector __attribute__((vector_size(4 * LANES)));
float fma_loop(long rounds) {
  vector chains[CHAINS], factor, sum = {0};
  for (int lane = 0; lane < LANES; lane++) {
    factor[lane] = 1.0f;
    for (int n = 0; n < CHAINS; n++) chains[n][lane] = (float)n;
  }
  for (long i = 0; i < rounds; i++) {
    __asm__ volatile("" : "+x"(factor));
#pragma GCC unroll 16
    for (int n = 0; n < CHAINS; n++) chains[n] = chains[n] * factor + factor;
  }
  for (int n = 0; n < CHAINS; n++) sum += chains[n];
  return sum[0];
}
"""


def _loops(folder: Path) -> list[tuple[int, Callable[[int], float]]]:
    """The loop in each width, with its lanes."""
    (folder / "fma.c").write_text(_SOURCE, encoding="utf-8")
    found: list[tuple[int, Callable[[int], float]]] = []
    for lanes in _LANES:
        defines = (f"-DLANES={lanes}", f"-DCHAINS={_CHAINS}")
        options = ("-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")
        command = [*find_compiler().command, *options, *defines, "fma.c", "-o", f"fma{lanes}.so"]
        subprocess.run(command, cwd=folder, check=True)
        loop = ctypes.CDLL(str(folder / f"fma{lanes}.so")).fma_loop
        loop.argtypes, loop.restype = [ctypes.c_long], ctypes.c_float
        found.append((lanes, loop))
    return found


@cache
def machine_peak(threads: int) -> float:
    """Arithmetic per second in float32, on that many threads at once."""
    with tempfile.TemporaryDirectory() as folder:
        loops = _loops(Path(folder))
        return max(
            2 * lanes * _CHAINS * _ROUNDS * threads / min(_seconds(loop, threads) for _ in range(_RUNS))
            for lanes, loop in loops
        )


def _seconds(loop: Callable[[int], float], threads: int) -> float:
    """From when the first of the threads begins until the last is done. ctypes lets go of Python's lock."""
    ready = threading.Barrier(threads)
    spans: list[tuple[float, float]] = []

    def work() -> None:
        ready.wait()
        started = time.perf_counter()
        loop(_ROUNDS)
        spans.append((started, time.perf_counter()))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(ended for _, ended in spans) - min(started for started, _ in spans)


def rows(threads: Sequence[int]) -> list[dict[str, object]]:
    return [
        {"model": "machine_peak", "threads": count, "gflops": machine_peak(count) / 1e9, "n": _RUNS}
        for count in threads
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--threads", default="1,2", help="comma-separated (default: %(default)s)")
    options = parser.parse_args(arguments)
    found = rows([int(count) for count in options.threads.split(",")])
    show_table(found, ("model", "threads", "gflops", "n"))
    if options.json:
        write_json(options.json, "machine_peak", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
