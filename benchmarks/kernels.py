"""Seconds of single kernels against PyTorch: products, convolutions, channel-wise convolutions, and their gradients.

    python -m benchmarks.kernels [--json FILE] [--families depthwise,...] [--threads 1,2] [--rounds 15]

Shapes are those of ResNet-18, MobileNetV2, EfficientNet-Lite0 and MiniLM-L6. Our kernels are scheduled by the rules
with no search and compiled as for a program: plain C functions on the runtime's own threads, their scratch passed in.
All packing is counted, on both sides. Both compute float32 on the same data, take turns, and must agree before they
are timed; a speedup below 1 means that PyTorch is faster. Needs `pip install torch==2.13.0`.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from benchmarks.measure import show_table, time_in_turns, write_json
from edgetrain._tvm import te, topi
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.gradients.convolution import conv2d_data_gradient, conv2d_weight_gradient
from edgetrain.graph.gradients.matmul import matmul_nn, matmul_nt, matmul_tn
from edgetrain.graph.gradients.window import Window
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.program.lower import CodegenTarget, compile_kernels, lower
from edgetrain.program.toolchain import find_compiler, runtime_text
from edgetrain.targets import HOST, load_target
from edgetrain_tuner.features import Features

try:
    import torch
except ImportError:
    torch = None

LARGEST_ERROR = 1e-4  # of the largest element
SCRATCH_ALIGNMENT = 64
_RUNTIME = ("threads.c", "internal.h", "edgetrain.h")
# What the threads call of the rest of the runtime: the text of an error, which nobody reads here.
_DESCRIBE_C = """#include "internal.h"
void edge_describe(const char* what, int system_error) { (void)what, (void)system_error; }
"""

Array = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """`groups` is 1, or as many as channels. The map is square, the padding keeps its size at stride 1."""

    batch: int
    channels: int
    size: int
    filters: int
    taps: int
    stride: int
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def outputs(self) -> int:
        return (self.size + 2 * self.padding - self.taps) // self.stride + 1

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (self.batch, self.channels, self.size, self.size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.filters, self.channels // self.groups, self.taps, self.taps)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.filters, self.outputs, self.outputs)

    @property
    def operations(self) -> int:
        return 2 * int(np.prod(self.output_shape)) * int(np.prod(self.weight_shape[1:]))

    @property
    def window(self) -> Window:
        return Window(strides=(self.stride,) * 2, pads=(self.padding,) * 2, dilation=(1, 1), groups=self.groups)

    def __str__(self) -> str:
        filters = "" if self.groups > 1 else f" to {self.filters}"
        return f"{self.batch}x{self.channels}x{self.size}²{filters} taps {self.taps} stride {self.stride}"


def _dense(batch: int, channels: int, size: int, filters: int, taps: int, stride: int) -> Convolution:
    return Convolution(batch=batch, channels=channels, size=size, filters=filters, taps=taps, stride=stride)


def _depthwise(batch: int, channels: int, size: int, taps: int, stride: int) -> Convolution:
    return Convolution(
        batch=batch, channels=channels, size=size, filters=channels, taps=taps, stride=stride, groups=channels
    )


CONVOLUTIONS = (
    _dense(4, 3, 224, 64, 7, 2),  # ResNet-18
    _dense(4, 64, 56, 64, 3, 1),
    _dense(4, 64, 56, 128, 3, 2),
    _dense(4, 64, 56, 128, 1, 2),
    _dense(4, 128, 28, 128, 3, 1),
    _dense(4, 256, 14, 256, 3, 1),
    _dense(4, 512, 7, 512, 3, 1),
    _dense(4, 3, 224, 32, 3, 2),  # EfficientNet-Lite0 and MobileNetV2
    _dense(4, 16, 112, 96, 1, 1),
    _dense(4, 144, 56, 24, 1, 1),
    _dense(4, 40, 28, 240, 1, 1),
    _dense(4, 480, 14, 80, 1, 1),
    _dense(4, 320, 7, 1280, 1, 1),
)
DEPTHWISE = (
    _depthwise(8, 32, 112, 3, 1),  # EfficientNet-Lite0
    _depthwise(8, 96, 112, 3, 2),
    _depthwise(8, 144, 56, 3, 1),
    _depthwise(8, 144, 56, 5, 2),
    _depthwise(8, 240, 28, 5, 1),
    _depthwise(8, 672, 14, 5, 1),
    _depthwise(8, 672, 14, 5, 2),
    _depthwise(8, 1152, 7, 5, 1),
    _depthwise(8, 576, 14, 3, 1),  # MobileNetV2
    _depthwise(8, 960, 7, 3, 1),
)
PRODUCTS = (  # rows, columns, depth: MiniLM-L6 with 8 x 128 tokens, and a classifier
    (1024, 384, 384),
    (1024, 1536, 384),
    (1024, 384, 1536),
    (32, 1000, 1280),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel: how to make it, from what, and who else computes the same."""

    family: str
    kernel: str
    shape: str
    operations: int
    function: Callable[[], Any]  # a PrimFunc
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    peer: Callable[..., Any]  # of the inputs as torch tensors


def _function(compute: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> Any:
    inputs = [te.placeholder(shape, name=f"input{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, compute(*inputs)])


def _forward(c: Convolution) -> Callable[..., Any]:
    if c.groups == 1:
        return lambda x, w: topi.nn.conv2d_nchw(x, w, c.stride, c.padding, 1)
    return lambda x, w: topi.nn.group_conv2d_nchw(x, w, c.stride, c.padding, 1, c.groups)


def _torch_backward(c: Convolution, mask: list[bool], dy: Any, x: Any, w: Any) -> Any:
    strides, pads = [c.stride] * 2, [c.padding] * 2
    return torch.ops.aten.convolution_backward(dy, x, w, None, strides, pads, [1, 1], False, [0, 0], c.groups, mask)


def _convolution_cases(family: str, c: Convolution) -> Iterator[Case]:
    x, w, y = c.data_shape, c.weight_shape, c.output_shape

    def case(kernel: str, inputs: tuple[Any, ...], output: Any, compute: Callable[..., Any], peer: Any) -> Case:
        return Case(
            family=f"{family} {kernel}",
            kernel=f"{family} {kernel}",
            shape=str(c),
            operations=c.operations,
            function=partial(_function, compute, inputs),
            inputs=inputs,
            output=output,
            peer=peer,
        )

    yield case(
        "forward",
        (x, w),
        y,
        _forward(c),
        lambda x, w: torch.nn.functional.conv2d(x, w, stride=c.stride, padding=c.padding, groups=c.groups),
    )
    # Shapes alone matter to PyTorch where a gradient does not depend on a value.
    empty_x, empty_w = (torch.zeros(shape) for shape in (x, w))
    if c.channels > 3:  # nobody asks for the gradient of an image
        yield case(
            "data gradient",
            (y, w),
            x,
            lambda dy, w: conv2d_data_gradient(dy, w, shape=x, window=c.window),
            lambda dy, w: _torch_backward(c, [True, False, False], dy, empty_x, w)[0],
        )
    yield case(
        "weight gradient",
        (x, y),
        w,
        lambda x, dy: conv2d_weight_gradient(x, dy, shape=w, window=c.window),
        lambda x, dy: _torch_backward(c, [False, True, False], dy, x, empty_w)[1],
    )


def _product_cases(rows: int, columns: int, depth: int) -> Iterator[Case]:
    kinds: Mapping[str, tuple[Any, Callable[[Any, Any], Any]]] = {
        "nn": (matmul_nn, lambda a, b: a @ b),
        "nt": (matmul_nt, lambda a, b: a @ b.T),
        "tn": (matmul_tn, lambda a, b: a.T @ b),
    }
    for kind, (compute, peer) in kinds.items():
        inputs = (
            (rows, depth) if kind[0] == "n" else (depth, rows),
            (depth, columns) if kind[1] == "n" else (columns, depth),
        )
        yield Case(
            family="matmul",
            kernel=f"matmul {kind}",
            shape=f"{rows}x{columns}x{depth}",
            operations=2 * rows * columns * depth,
            function=partial(_function, compute, inputs),
            inputs=inputs,
            output=(rows, columns),
            peer=peer,
        )


def all_cases() -> list[Case]:
    return [
        *(case for sizes in PRODUCTS for case in _product_cases(*sizes)),
        *(case for c in CONVOLUTIONS for case in _convolution_cases("convolution", c)),
        *(case for c in DEPTHWISE for case in _convolution_cases("depthwise", c)),
    ]


@dataclass(frozen=True, kw_only=True)
class Built:
    """The kernels of all cases in one library, with the scratch that each needs."""

    library: ctypes.CDLL
    scratch_bytes: tuple[tuple[int, ...], ...]

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
    codegen = load_target(HOST).codegen
    features = Features(vector_bits=codegen.vector_bits, vector_registers=codegen.vector_registers, cores=codegen.cores)
    target = CodegenTarget(
        triple=codegen.triple,
        cpu=codegen.cpu,
        features=tuple(f for f in codegen.features.split(",") if f),
        cores=codegen.cores,
    )
    kernels = tuple(
        Kernel(symbol=f"kernel{n}", function=case.function(), in_place=False) for n, case in enumerate(cases)
    )
    lowered = lower(Extracted(graph=_graph(cases), kernels=kernels, initial={}), features)
    compile_kernels(lowered.kernels, target, folder / "kernels.o")
    for name in _RUNTIME:
        (folder / name).write_text(runtime_text(name), encoding="utf-8")
    (folder / "describe.c").write_text(_DESCRIBE_C, encoding="utf-8")
    # Symbolic: the parallel launch is ours, not that of TVM's runtime in the same process.
    options = ("-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack,-z,defs")
    sources = ("threads.c", "describe.c", "kernels.o", "-o", "kernels.so", "-lm", "-lpthread")
    subprocess.run([*find_compiler().command, *options, *sources], cwd=folder, check=True)
    return Built(
        library=ctypes.CDLL(str(folder / "kernels.so")),
        scratch_bytes=tuple(op.scratch_bytes for op in lowered.graph.functions["step"]),
    )


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
        both = time_in_turns({"ours": ours, "peer": peer}, rounds=rounds)
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
                "family": case.family,
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
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--families", default="", help="comma-separated beginnings of names (default: all)")
    parser.add_argument("--threads", default="1,2", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    if torch is None:
        print("this benchmark compares with PyTorch: pip install torch==2.13.0", file=sys.stderr)
        return 2
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
    show_table(rows, (*columns, "spread", "peer_spread"))
    print()
    show_table(means(rows), ("family", "threads", "shapes", "mean_speedup", "least"))
    if options.json:
        write_json(options.json, "kernels", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
