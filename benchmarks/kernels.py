"""Compares single kernels with PyTorch: products, convolutions, pooling, their gradients, softmax, elementwise kernels.

    python -m benchmarks.kernels [--json [FILE]] [--families depthwise,...] [--threads 1,2] [--rounds 15]

The shapes are those of ResNet-18, MobileNetV2, EfficientNet-Lite0 and MiniLM-L6. Our kernels are scheduled by the rules
without a search and compiled as in a program: plain C functions on the runtime's own threads, with scratch passed in.
Times include all packing, on both sides. Both sides compute float32 on the same data and take turns. Their results must
agree before they are timed. A speedup below 1 means that PyTorch is faster.

`alone_seconds` is our time without turns. `time_goes_to` divides our time into parts, by the cost model that chose the
kernel's blocking. Needs `pip install torch==2.13.0`.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from benchmarks.kernel_cases import Case, all_cases
from benchmarks.measure import STANDARD_OUTPUT, add_json_option, publish, show_table, time_in_turns
from benchmarks.needs import missing_torch, require
from edgetrain.compiler.lower import compile_kernels, lower
from edgetrain.compiler.tuner_view import machine_of
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.runtime.sources import runtime_text
from edgetrain.targets.profile import HOST, load_target
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.product.blocking import blocking_of, cost
from edgetrain_tuner.rules.product.packed_product import SIDE, PackedProduct
from edgetrain_tuner.rules.product.vector_side import vector_sides
from edgetrain_tuner.schedule import Schedule

try:
    import torch
except ImportError:
    torch = None

LARGEST_ERROR = 1e-4  # of the largest element
SCRATCH_ALIGNMENT = 64
_REST_S = 0.03  # OpenMP's threads look for work this long after a call, in the same process as ours
_RUNTIME = ("threads.c", "internal.h", "edgetrain.h")
# What the threads call of the rest of the runtime: the text of an error, which nobody reads here.
_DESCRIBE_C = """#include "internal.h"
void edge_describe(const char* what, int system_error) { (void)what, (void)system_error; }
"""

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Built:
    """The kernels of all cases in one library, with the scratch that each needs and where its time goes."""

    library: ctypes.CDLL
    scratch_bytes: tuple[tuple[int, ...], ...]
    shares: tuple[Mapping[str, float], ...]

    def call(self, number: int, arrays: Sequence[Array]) -> Callable[[], None]:
        """Calls the kernel on these arrays, the result last."""
        scratch = [_aligned(size) for size in self.scratch_bytes[number]]
        addresses = [*(array.ctypes.data for array in arrays), *(block.ctypes.data for block in scratch)]
        pointers = [ctypes.c_void_p(address) for address in addresses]
        function = self.library[f"kernel{number}"]

        def run(_kept: object = scratch) -> None:
            if function(*pointers) != 0:
                raise RuntimeError(f"kernel{number} failed")

        return run

    def use_threads(self, count: int) -> None:
        self.library.edge_threads_close()
        if self.library.edge_threads_open(count) != 0:
            raise RuntimeError(f"{count} threads could not be started")


def _aligned(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    buffer = np.zeros(size + SCRATCH_ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % SCRATCH_ALIGNMENT
    return buffer[start : start + size]


def build(cases: Sequence[Case], folder: Path) -> Built:
    """Compiles every case's kernel for this machine, as a program's kernels are."""
    codegen = load_target(HOST).device.codegen
    machine = machine_of(codegen)
    kernels = tuple(Kernel(symbol=f"kernel{n}", function=case.function()) for n, case in enumerate(cases))
    lowered = lower(Extracted(graph=_graph(cases), kernels=kernels, initial={}), machine)
    objects = [f"{kernel.symbol}.o" for kernel in lowered.kernels]
    for kernel, name in zip(lowered.kernels, objects, strict=True):
        compile_kernels([kernel], codegen, folder / name)
    for name in _RUNTIME:
        (folder / name).write_text(runtime_text(name), encoding="utf-8")
    (folder / "describe.c").write_text(_DESCRIBE_C, encoding="utf-8")
    # Symbolic: the parallel launch is ours, not that of TVM's runtime in the same process.
    options = ("-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack,-z,defs")
    sources = ("threads.c", "describe.c", *objects, "-o", "kernels.so", "-lm", "-lpthread")
    subprocess.run([*find_compiler().command, *options, *sources], cwd=folder, check=True)
    return Built(
        library=ctypes.CDLL(str(folder / "kernels.so")),
        scratch_bytes=tuple(op.scratch_bytes for op in lowered.graph.functions["step"]),
        shares=tuple(_shares(kernel.function, lowered.choices[kernel.symbol].schedule, machine) for kernel in kernels),
    )


def _shares(function: Any, schedule: Schedule | None, machine: Machine) -> dict[str, float]:
    """Of the time that a kernel takes by the model of its rule; empty where the rule has none."""
    contraction = find(function)
    if schedule is None or schedule.rule != PackedProduct.name or contraction is None:
        return {}
    parameters = dict(schedule.parameters)
    side = vector_sides(contraction)[parameters.pop(SIDE)[0]]
    expected = cost(side, blocking_of(side, machine, parameters), machine)
    return {part: seconds / expected.total for part, seconds in asdict(expected).items()}


def _graph(cases: Sequence[Case]) -> TrainGraph:
    """A graph of one op for each case: what `lower` writes the kernels' scratch into."""
    tensors: dict[str, Tensor] = {}
    ops = []
    for number, case in enumerate(cases):
        reads = tuple(f"input{number}.{n}" for n in range(len(case.inputs)))
        written = f"output{number}"
        shapes = zip((*reads, written), (*case.inputs, case.output), strict=True)
        for name, shape in shapes:
            role = Role.OUTPUT if name == written else Role.INPUT
            tensors[name] = Tensor(name=name, shape=shape, dtype="float32", role=role)
        ops.append(
            Op(name=f"op{number}", kernel=f"kernel{number}", reads=reads, writes=(written,), phase=Phase.FORWARD)
        )
    return TrainGraph(name="kernels", tensors=tensors, functions={"step": tuple(ops)})


def measure(case: Case, number: int, built: Built, threads: Sequence[int], rounds: int) -> list[dict[str, object]]:
    """A row for each number of threads. Raises `SystemExit` where both sides do not agree."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, dtype=np.float32) for shape in case.inputs]
    result = np.full(case.output, np.nan, np.float32)
    ours = built.call(number, [*arrays, result])
    peer = partial(case.peer, *(torch.from_numpy(array) for array in arrays))
    rows: list[dict[str, object]] = []
    for count in threads:
        built.use_threads(count)
        torch.set_num_threads(count)
        ours()
        expected = peer().numpy()
        error = float(np.abs(result - expected).max() / np.abs(expected).max())
        if not error <= LARGEST_ERROR:
            raise SystemExit(f"{case.kernel} {case.shape}: differs from PyTorch by {error:.1e} of the largest element")
        rest_s = _REST_S if count > 1 else 0.0
        both = time_in_turns({"ours": ours, "peer": peer}, rounds=rounds, rest_s=rest_s)
        alone = time_in_turns({"ours": ours}, rounds=rounds)["ours"]
        rows.append(
            {
                "kernel": case.kernel,
                "shape": case.shape,
                "threads": count,
                "seconds": both["ours"].seconds,
                "peer_seconds": both["peer"].seconds,
                "speedup": both["peer"].seconds / both["ours"].seconds,
                "gflops": case.operations / both["ours"].seconds / 1e9,
                "scratch_bytes": sum(built.scratch_bytes[number]),
                "error": error,
                "spread": both["ours"].spread,
                "peer_spread": both["peer"].spread,
                "n": both["ours"].n,
                "alone_seconds": alone.seconds,
                "family": case.family,
                "time_goes_to": dict(built.shares[number]),
            }
        )
    return rows


def means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """The geometric mean and the least speedup of each family and number of threads."""
    groups: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        groups.setdefault((row["family"], row["threads"]), []).append(row["speedup"])
    return [
        {"family": family, "threads": threads, "shapes": len(s), "mean_speedup": geometric_mean(s), "least": min(s)}
        for (family, threads), s in sorted(groups.items())
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_json_option(parser)
    parser.add_argument("--families", default="", help="comma-separated beginnings of names (default: all)")
    parser.add_argument("--threads", default="1,2", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    require(missing_torch())
    wanted = tuple(options.families.split(","))
    cases = [case for case in all_cases() if case.family.startswith(wanted)]
    threads = [int(count) for count in options.threads.split(",")]
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        print(f"compiling {len(cases)} kernels", file=sys.stderr)
        built = build(cases, Path(folder))
        for number, case in enumerate(cases):
            rows += measure(case, number, built, threads, options.rounds)
            if sys.stderr.isatty():
                print(f"\rmeasured {number + 1} of {len(cases)}", end="", file=sys.stderr)
        built.library.edge_threads_close()
    columns = ("kernel", "shape", "threads", "seconds", "peer_seconds", "speedup", "gflops", "scratch_bytes")
    publish("kernels", rows, (*columns, "spread", "peer_spread"), options.json)
    if options.json != STANDARD_OUTPUT:
        print()
        show_table(means(rows), ("family", "threads", "shapes", "mean_speedup", "least"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
