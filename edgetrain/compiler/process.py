"""The compiler's process: reads one job from standard input, writes files, reports progress as JSON lines.

Run as `python -m edgetrain.compiler.process`. It is the only process that imports TVM.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import onnx

from edgetrain.compiler.client import out_of_memory, refused
from edgetrain.compiler.compiled import FACTS, GRAPH, INITIAL, MODEL, device_code_file, kernels_file
from edgetrain.compiler.lifetime import end_with_parent
from edgetrain.compiler.quick_start import collect_rarely, do_without_torch
from edgetrain.compiler.request import ZOO, CompileRequest, ModelSource
from edgetrain.compiler.schedules import SCHEDULES, Choices, KernelRecord, ScheduleChoice, ScheduleStores, write_records
from edgetrain.compiler.search.request import TUNED, TUNING, TuneRequest
from edgetrain.compiler.search.trials import TRIALS, TRYING, TrialTerms, write_trials
from edgetrain.compiler.tuner_view import machine_of, schedule_target
from edgetrain.errors import EdgetrainError
from edgetrain.graph.ir import to_json
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.persistent import SHIPPED_ROLES, layout_persistent
from edgetrain.model.fold_batchnorm import fold_batchnorm
from edgetrain.model.head import replace_head
from edgetrain.model.load import check, load_onnx
from edgetrain.model.model import Array, Model
from edgetrain.model.output import trained_output
from edgetrain.model.tensor_names import onnx_name
from edgetrain.model.undo_exporter import undo_exporter
from edgetrain.model.zoo import build_zoo_model
from edgetrain_tuner.cache.entry import Workload

if TYPE_CHECKING:
    from edgetrain.compiler.lower import Lowered
    from edgetrain.compiler.search.try_schedules import TrialBench
    from edgetrain.graph.build import BuiltStep
    from edgetrain.graph.extract import Extracted


def main() -> int:
    end_with_parent()
    collect_rarely()
    # The libraries below print to standard output when they please; the protocol needs a channel of its own.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    job = json.load(sys.stdin)
    do_without_torch()
    try:
        _JOBS[job["job"]](job, Path(job["out"]), channel)
    except EdgetrainError as error:
        channel.write(json.dumps(error.to_json()) + "\n")
    except OSError as error:
        channel.write(json.dumps(refused(error).to_json()) + "\n")
    except MemoryError:
        channel.write(json.dumps(out_of_memory("it could not be given any more").to_json()) + "\n")
    return 0


def _say(channel: TextIO, stage: str, done: int = 0, total: int = 0) -> None:
    channel.write(json.dumps({"stage": stage, "done": done, "total": total}) + "\n")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The model as it is trained and exported, the output that is trained, and what was rewritten."""

    proto: Any
    output: str
    rewrites: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _open_model(source: ModelSource) -> _Opened:
    if source.source.startswith(ZOO):
        proto = build_zoo_model(source.source.removeprefix(ZOO))
    else:
        proto = load_onnx(Path(source.source))
    undone = undo_exporter(proto, separate=source.separate, tie=source.tie)
    if undone.model is not proto:
        check(undone.model, source.source)
    proto, warnings = undone.model, undone.warnings
    output = trained_output(proto, source.output)
    if source.classes is not None:
        proto = replace_head(proto, source.classes, source.seed, source.head, output=output)
        check(proto, source.source)
    if not source.fold_batchnorm:
        return _Opened(proto=proto, output=output, rewrites=undone.rewrites, warnings=warnings)
    folded = fold_batchnorm(proto)
    check(folded.model, source.source)
    rewrites = (*undone.rewrites, *folded.rewrites)
    return _Opened(proto=folded.model, output=output, rewrites=rewrites, warnings=warnings)


def _import(source: ModelSource, options: TrainOptions, channel: TextIO) -> tuple[_Opened, Model]:
    from edgetrain.model.importer import import_model  # TVM loads here, after the job was read

    opened = _open_model(source)
    _say(channel, "importing the model")
    name = source.source.removeprefix(ZOO).rsplit("/", 1)[-1].removesuffix(".onnx")
    shapes = {n: (options.batch, *s) for n, s in (options.input_shapes or {}).items()}
    model = import_model(opened.proto, name=name, batch=options.batch, shapes=shapes, output=opened.output)
    opened = dataclasses.replace(opened, warnings=(*opened.warnings, *model.warnings))
    return opened, dataclasses.replace(model, rewrites=(*opened.rewrites, *model.rewrites))


def _compile(job: Mapping[str, Any], out: Path, channel: TextIO) -> None:
    request = CompileRequest.from_json(job["request"])
    opened, model = _import(request.model, request.options, channel)
    from edgetrain.graph.build import build_step
    from edgetrain_tuner.workload import workload_of

    _say(channel, "building the training graph")
    built = build_step(model, request.options)
    extracted = _kernels_of(built, model, request)
    workloads = {kernel.symbol: workload_of(kernel.function) for kernel in extracted.kernels}
    choices = _choices(job, request, extracted, workloads, out, channel)
    lowered = _lowered(job, request, extracted, choices, out, channel)
    records = {
        symbol: KernelRecord(
            workload=workload, asked=choices.get(symbol, ScheduleChoice()), choice=lowered.choices[symbol]
        )
        for symbol, workload in workloads.items()
    }
    write_records(out / SCHEDULES, records)
    (out / GRAPH).write_text(to_json(lowered.graph), encoding="utf-8")
    _write_initial(out / INITIAL, lowered.graph, extracted.initial)
    onnx.save(opened.proto, str(out / MODEL))
    facts = {
        "name": model.name,
        "inputs": [{**dataclasses.asdict(i), "name": onnx_name(i.name)} for i in model.inputs],
        "outputs": list(model.outputs),
        "trained": list(built.trained),
        "parameters": sum(int(np.prod(a.shape)) for a in model.parameters.values()),
        "trained_parameters": sum(built.tensors[n].elements for n in built.trained),
        "adapters": [adapter.to_json() for adapter in built.adapters],
        "output_axes": dict(built.output_axes),
        "rewrites": list(model.rewrites),
        "warnings": list(opened.warnings),
        "traffic": extracted.traffic.to_json() if extracted.traffic is not None else None,
    }
    (out / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _lowered(
    job: Mapping[str, Any],
    request: CompileRequest,
    extracted: Extracted,
    choices: Choices,
    out: Path,
    channel: TextIO,
) -> Lowered:
    """The kernels scheduled; and compiled, under the name of each archive."""
    progress = partial(_say, channel, "scheduling kernels")
    if request.gpu is not None:
        from edgetrain.compiler.gpu_lower import lower_for_gpu

        for_gpu = lower_for_gpu(extracted, request.gpu, progress)
        for name in request.archives:
            (out / device_code_file(name)).write_text(for_gpu.code.to_json(), encoding="utf-8")
        return for_gpu.lowered
    from edgetrain.compiler.lower import lower
    from edgetrain.compiler.objects import ObjectStore, compile_archive

    lowered = lower(extracted, machine_of(request.codegen), progress, choices=choices)
    for name, codegen in request.archives.items():
        stage = f"compiling {len(lowered.kernels)} kernels for {name}"
        _say(channel, stage)
        compile_archive(
            lowered.kernels,
            codegen,
            out / kernels_file(name),
            store=ObjectStore(Path(job["objects"])),
            progress=partial(_say, channel, stage),
        )
    return lowered


def _bench(request: CompileRequest, extracted: Extracted, terms: Mapping[str, Any], channel: TextIO) -> TrialBench:
    """Where schedules are tried."""
    from edgetrain.compiler.search.try_schedules import TrialBench

    return TrialBench(
        extracted=extracted,
        machine=machine_of(request.codegen),
        request=request,
        terms=TrialTerms.from_json(terms),
        progress=partial(_say, channel, TRYING),
    )


def _choices(
    job: Mapping[str, Any],
    request: CompileRequest,
    extracted: Extracted,
    workloads: Mapping[str, Workload],
    out: Path,
    channel: TextIO,
) -> Choices:
    """What was asked for; where that was left open, what the stores have, tried first where that is possible."""
    if request.schedules is not None:
        return request.schedules
    if request.gpu is not None:  # whatever is known is of processors
        return {}
    target = schedule_target(request.codegen)
    if job["stores"] is None or target is None:
        return {}
    stores = ScheduleStores.from_json(job["stores"])
    if job["terms"] is None:
        return stores.choose(workloads, target).choices
    from edgetrain.compiler.search.try_schedules import choose_after_trials

    chosen = choose_after_trials(_bench(request, extracted, job["terms"], channel), workloads, stores)
    write_trials(out / TRIALS, chosen.report)
    return chosen.choices


def _write_initial(path: Path, graph: Any, initial: Mapping[str, Array]) -> None:
    layout = layout_persistent(graph)
    shipped = [t for t in graph.persistent if t.role in SHIPPED_ROLES]
    with path.open("wb") as stream:
        for tensor in shipped:
            stream.seek(layout.offsets[tensor.name])
            stream.write(np.ascontiguousarray(initial[tensor.name], np.dtype(tensor.dtype).newbyteorder("<")).tobytes())


def _inspect(job: Mapping[str, Any], out: Path, channel: TextIO) -> None:
    data = job["request"]
    source, options = ModelSource(**data["model"]), TrainOptions.from_json(data["options"])
    opened, model = _import(source, options, channel)
    from edgetrain.graph.inspection import inspect

    facts = {**inspect(opened.proto, model, options), "warnings": list(opened.warnings)}
    (out / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _extracted(request: CompileRequest, channel: TextIO) -> Extracted:
    """The model's kernels alone."""
    _, model = _import(request.model, request.options, channel)
    from edgetrain.graph.build import build_step

    _say(channel, "building the training graph")
    return _kernels_of(build_step(model, request.options), model, request)


def _kernels_of(built: BuiltStep, model: Model, request: CompileRequest) -> Extracted:
    """The step as the kernels that a program of this request calls."""
    from edgetrain.compiler.fuse_updates import fuse_updates
    from edgetrain.graph.extract import extract

    extracted = extract(built, model.name)
    if request.gpu is not None:  # only a rule that completes each element in place gains; TVM's for GPUs do not
        return extracted
    return fuse_updates(extracted, machine_of(request.codegen))


def _try(job: Mapping[str, Any], out: Path, channel: TextIO) -> None:
    request = CompileRequest.from_json(job["request"])
    extracted = _extracted(request, channel)
    from edgetrain.compiler.search.try_schedules import try_faster_entries

    bench = _bench(request, extracted, job["terms"], channel)
    write_trials(out / TRIALS, try_faster_entries(bench, ScheduleStores.from_json(job["stores"])))


def _tune(job: Mapping[str, Any], out: Path, channel: TextIO) -> None:
    request = TuneRequest.from_json(job["request"])
    extracted = _extracted(request.compile, channel)
    from edgetrain.compiler.search.tune_kernels import tune_kernels

    found = tune_kernels(extracted, request, lambda done, total: _say(channel, TUNING, done, total))
    (out / TUNED).write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")


_JOBS = {"compile": _compile, "inspect": _inspect, "tune": _tune, "try": _try}

if __name__ == "__main__":
    sys.exit(main())
