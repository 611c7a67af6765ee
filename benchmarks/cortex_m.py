"""Counts the instructions of a training step on an emulated Cortex-M, with scheduled and with unscheduled kernels.

    python -m benchmarks.cortex_m [--targets cortex-m4,cortex-m7] [--model digits-cnn] [--batch 4] [--json FILE]

Both programs are planned without a limit, linked as firmware, and run on the same batch in qemu-system-arm, which
counts every instruction. The counts are exact and the same on any machine. They are not times. The losses must agree.

Needs qemu-system-arm (Debian: `apt-get install qemu-system-arm`).
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import emulated_board as board
from benchmarks.measure import add_json_option, publish
from edgetrain.compiler.fuse_updates import fuse_updates
from edgetrain.compiler.lower import Lowered, compile_kernels, lower, scratch_of
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.graph.build import build_step
from edgetrain.graph.extract import Extracted, extract
from edgetrain.graph.ir import TrainGraph
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.graph.persistent import SHIPPED_ROLES
from edgetrain.model.importer import import_model
from edgetrain.model.model import Array
from edgetrain.model.zoo import build_zoo_model
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget
from edgetrain.program.emit_c import emit_driver, emit_header
from edgetrain.program.layout import arena_layout
from edgetrain.runtime.sources import RUNTIME_HEADERS, RUNTIME_SOURCES, runtime_text
from edgetrain.targets.profile import Target, load_target
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain_tuner.machine import Machine

TARGETS = ("cortex-m4", "cortex-m7")
STEPS = 2  # the last is counted
STACK_BYTES = 16 * 1024
RAM_BYTES = 4 * 1024 * 1024  # the board's, not the target's: an unscheduled step need not fit
TICK_NS, INSTRUCTION_NS = 40, 512  # see cortex_m_main.c
LARGEST_DIFFERENCE = 1e-4  # of two losses
SCHEDULED, UNSCHEDULED = "scheduled", "unscheduled"
COLUMNS = (
    "target",
    "family",
    "rules",
    "calls",
    *(f"{s}_{what}" for what in ("instructions", "flash_bytes") for s in (UNSCHEDULED, SCHEDULED)),
    "ratio",
    "share",
)
TOTAL = "whole step"
_SYMBOLS, _SYMBOL_BYTES, _FUNCTION = 2, 16, 2  # SHT_SYMTAB, the size of an Elf32_Sym, STT_FUNC
_NUMBER = re.compile(r"(?<=[a-z])\d+(?=_|$)")  # what tells kernels of one family apart: `conv2d1` from `conv2d`


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A step as it ran: losses, instructions of each op, bytes of machine code of each kernel."""

    losses: tuple[float, ...]
    instructions: tuple[int, ...]  # by op of the step
    flash_bytes: Mapping[str, int]  # by kernel
    arena_bytes: int
    graph: TrainGraph


def unscheduled(extracted: Extracted) -> Lowered:
    """The kernels as the graph was legalised and fused, with the scratch they need."""
    scratch = {kernel.symbol: scratch_of(kernel) for kernel in extracted.kernels}
    functions = {
        name: tuple(replace(op, scratch_bytes=scratch[op.kernel]) for op in ops)
        for name, ops in extracted.graph.functions.items()
    }
    graph = replace(extracted.graph, functions=functions)
    return Lowered(graph=graph, kernels=extracted.kernels, choices={})


def count(lowered: Lowered, initial: Mapping[str, Array], target: Target, batch: int) -> Counted:
    """Links the program, runs `STEPS` steps of it and reads what was counted."""
    emulator = shutil.which(board.EMULATOR)
    if emulator is None:
        raise SystemExit(f"needs {board.EMULATOR}: apt-get install {board.PACKAGE}")
    with tempfile.TemporaryDirectory(prefix="edgetrain-cortex-m-") as name:
        folder = Path(name)
        arena_bytes = _lay_out(folder, lowered, initial, target, batch)
        compiler = find_compiler(target.device.codegen.triple, cpu=target.device.codegen.cpu)
        sources: list[str | Path] = [board.FILES / "cortex_m_main.c", "driver.c", *RUNTIME_SOURCES, "kernels.o"]
        options = (f"-DSTEPS={STEPS}", "-DEDGE_PROFILE", "-Wl,--gc-sections")
        built = board.link_firmware(compiler, folder, sources, *options, ram_bytes=RAM_BYTES, stack_bytes=STACK_BYTES)
        if built.returncode != 0:
            raise SystemExit(f"linking failed:\n{built.stderr[-2000:]}")
        done = board.run_firmware(emulator, target.device.codegen.cpu, folder, "-icount", "shift=9")
        if done.returncode != 0:
            raise SystemExit(f"the emulated step ended with {done.returncode}:\n{done.stderr[-2000:]}")
        words = [int(line, 16) for line in (done.stdout + done.stderr).split()]
        losses, (ops, *ticks) = words[:STEPS], words[STEPS:]
        sizes = function_bytes((folder / board.FIRMWARE).read_bytes())
    assert len(ticks) == ops == len(lowered.graph.functions["step"])
    return Counted(
        losses=tuple(struct.unpack("<f", struct.pack("<I", word))[0] for word in losses),
        instructions=tuple(round(t * TICK_NS / INSTRUCTION_NS) for t in ticks),
        flash_bytes={kernel.symbol: sizes[kernel.symbol] for kernel in lowered.kernels},
        arena_bytes=arena_bytes,
        graph=lowered.graph,
    )


def _lay_out(folder: Path, lowered: Lowered, initial: Mapping[str, Array], target: Target, batch: int) -> int:
    """Writes everything that firmware is made of; returns the size of the arena."""
    graph = lowered.graph
    plan = make_plan(graph, Budget(), analytic_costs_by_function(graph, target.device.rates))
    layout = arena_layout(graph, plan)
    (folder / "driver.c").write_text(emit_driver(graph, plan))
    (folder / "edgetrain_model.h").write_text(emit_header(graph, plan))
    for name in (*RUNTIME_SOURCES, *RUNTIME_HEADERS):
        (folder / name).write_text(runtime_text(name))
    (folder / "profile.c").write_text("/* The firmware counts by itself. */\n")
    parameters = bytearray(layout.shipped_bytes)
    for tensor in (t for t in graph.persistent if t.role in SHIPPED_ROLES):
        start = plan.persistent_offsets[tensor.name]
        parameters[start : start + tensor.nbytes] = np.ascontiguousarray(initial[tensor.name]).tobytes()
    (folder / "parameters.bin").write_bytes(parameters)
    random = np.random.default_rng(0)
    image = graph.tensors["image"]
    (folder / "images.bin").write_bytes(random.standard_normal(image.shape).astype(np.float32).tobytes())
    (folder / "labels.bin").write_bytes(random.integers(0, 10, batch).astype(np.int64).tobytes())
    compile_kernels(lowered.kernels, target.device.codegen, folder / "kernels.o")
    return layout.arena_bytes


def function_bytes(elf: bytes) -> dict[str, int]:
    """The sizes of the functions in a linked 32-bit little-endian file, by name."""
    (offset,) = struct.unpack_from("<I", elf, 32)
    size, number = struct.unpack_from("<HH", elf, 46)
    sections = [struct.unpack_from("<10I", elf, offset + size * n) for n in range(number)]
    found: dict[str, int] = {}
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != _SYMBOLS:
            continue
        names = sections[link][4]
        for place in range(start, start + length, _SYMBOL_BYTES):
            name, _, nbytes, info = struct.unpack_from("<IIIB", elf, place)
            if info & 15 == _FUNCTION:
                found[elf[names + name : elf.index(b"\0", names + name)].decode()] = nbytes
    return found


def family(kernel: str) -> str:
    """`k17_fused_conv2d1_add1` is one of `conv2d_add`."""
    return _NUMBER.sub("", kernel.partition("_")[2].removeprefix("fused_"))


def rows_of(target: str, counted: Mapping[str, Counted], rules: Mapping[str, str]) -> list[dict[str, object]]:
    """A row for the whole step, and one for each family of kernels, those with the most instructions first.

    `share` is that of the scheduled step's instructions; the whole step has `arena_bytes` too.
    """
    ops = counted[SCHEDULED].graph.functions["step"]
    whole = sum(counted[SCHEDULED].instructions)
    families = {TOTAL: tuple(range(len(ops)))}
    for number, op in enumerate(ops):
        families[family(op.kernel)] = (*families.get(family(op.kernel), ()), number)
    rows = []
    for name, numbers in families.items():
        row: dict[str, object] = {"target": target, "family": name, "calls": len(numbers)}
        row["rules"] = ", ".join(sorted({rules[ops[n].kernel] for n in numbers}))
        for which, c in counted.items():
            row[f"{which}_instructions"] = sum(c.instructions[n] for n in numbers)
            row[f"{which}_flash_bytes"] = sum(c.flash_bytes[kernel] for kernel in {ops[n].kernel for n in numbers})
            row |= {f"{which}_arena_bytes": c.arena_bytes} if name == TOTAL else {}
        least = sum(counted[SCHEDULED].instructions[n] for n in numbers)
        row["ratio"] = least / sum(counted[UNSCHEDULED].instructions[n] for n in numbers)
        row["share"] = least / whole
        rows.append(row)
    return sorted(rows, key=lambda row: -float(str(row["share"])))


def measure(name: str, model: str, batch: int) -> list[dict[str, object]]:
    target = load_target(name)
    imported = import_model(build_zoo_model(model), name=model, batch=batch)
    options = TrainOptions(batch=batch, optimizer=OptimizerOptions(kind="sgd", momentum=0.9))
    codegen = target.device.codegen
    machine = Machine(vector_bits=codegen.vector_bits, vector_registers=codegen.vector_registers, cores=codegen.cores)
    extracted = fuse_updates(extract(build_step(imported, options), model), machine)
    programs = {UNSCHEDULED: unscheduled(extracted), SCHEDULED: lower(extracted, machine)}
    counted = {which: count(program, extracted.initial, target, batch) for which, program in programs.items()}
    np.testing.assert_allclose(
        counted[SCHEDULED].losses, counted[UNSCHEDULED].losses, rtol=LARGEST_DIFFERENCE, err_msg="losses"
    )
    choices = programs[SCHEDULED].choices
    rules = {kernel: choice.schedule.rule for kernel, choice in choices.items() if choice.schedule is not None}
    return rows_of(name, counted, rules)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--model", default="digits-cnn", help="a zoo model of images (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=4)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    rows = [row for name in options.targets.split(",") for row in measure(name, options.model, options.batch)]
    publish("cortex_m", rows, COLUMNS, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
