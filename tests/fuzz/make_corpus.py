"""Makes the corpus again from real files: what edgetrain itself writes, and what other libraries do.

    python -m tests.fuzz.make_corpus

Trains a model of 43 parameters for the files of a run. Everything is small, so that mutations hit what matters.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

from benchmarks.importing.fuzzing import seeds
from benchmarks.importing.onnx_models import mlp
from edgetrain.cli import main as edgetrain
from edgetrain.locate import data_path
from edgetrain_tuner.cache.entry import Signature
from tests.edgetrain_tuner.cache.entries import entry
from tests.fuzz import data_files
from tests.fuzz.harness import CORPUS, reader_names
from tests.fuzz.readers.run_files import NAMES

Files = Mapping[str, bytes]
_MOST_MODELS, _MOST_MODEL_BYTES = 40, 1500


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m tests.fuzz.make_corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = _trained(Path(folder))
        made: dict[str, Files] = {name: make() for name, make in _MAKERS.items()}
        made |= {name: make(run) for name, make in _OF_A_RUN.items()}
    missing = set(reader_names()) ^ set(made)
    assert not missing, f"no seeds, or no reader: {missing}"
    for reader, files in made.items():
        shutil.rmtree(CORPUS / reader, ignore_errors=True)
        (CORPUS / reader).mkdir(parents=True)
        for name, content in files.items():
            (CORPUS / reader / name).write_bytes(content)
        print(f"{reader:18} {len(files):3} files {sum(map(len, files.values())):7} bytes")


def _trained(folder: Path) -> Path:
    """The folder of a small finished run."""
    random = np.random.default_rng(0)
    (folder / "mlp.onnx").write_bytes(_whole(mlp()))
    x, y = random.standard_normal((40, 4)).astype(np.float32), np.arange(40) % 3
    np.savez(folder / "data.npz", x=x, y=y, x_test=x[:8], y_test=y[:8])
    words = ["fit", str(folder / "mlp.onnx"), f"data.source={folder / 'data.npz'}", "train.batch=4", "train.epochs=1"]
    assert edgetrain([*words, "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def _named(name: str, content: bytes) -> bytes:
    return name.encode() + b"\n" + content


def _unsealed(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_bytes())
    data.pop("sha256", None)
    return data


def _run_files(run: Path) -> Files:
    files = {name: _unsealed(run / name) for name in NAMES}
    files["schedules.json"]["kernels"] = dict(list(files["schedules.json"]["kernels"].items())[:2])
    files["learned.json"]["hardest"] = files["learned.json"]["hardest"][:1]
    for name in ("recipe.json", "job.json"):  # no name of a folder of this machine
        files[name] = json.loads(json.dumps(files[name]).replace(str(run.parent), "/data"))
    return {name: _named(name, json.dumps(data, indent=1).encode()) for name, data in files.items()}


def _program(run: Path) -> Files:
    names = ("manifest.json", "graph.json", "plan.json")
    return {name: _named(name, (run / "program" / name).read_bytes()) for name in names}


def _exchange(run: Path) -> Files:
    rung = {"planned_peak_bytes": 4096, "beside_bytes": 512, "planned_seconds": 0.5, "program": "/runs/a/program"}
    live = {
        "format": "edgetrain.live/1",
        "step": 3,
        "steps": 9,
        "budget_bytes": 8192,
        "limit_bytes": None,
        "rung": rung,
    }
    live |= {"measured_peak_bytes": 4000, "since_step": 1, "rungs": [rung], "compiled_directory": "/cache/a"}
    live |= {"compiled_key": "a", "answered": "1", "refusal": ""}
    request = {"format": "edgetrain.live/1", "id": "1", "budget_bytes": 4096, "rung": rung, "compiled_key": "a"}
    question = {**request, "id": "2", "rung": None, "budget_bytes": None}
    named = {"live": ("live.json", live), "request": ("request.json", request), "question": ("request.json", question)}
    return {key: _named(name, json.dumps(data).encode()) for key, (name, data) in named.items()}


def _descriptions(run: Path) -> Files:
    model = onnx.load(str(run / "model.onnx"))
    properties = {p.key: p.value for p in model.metadata_props if p.key != "edgetrain.sha256"}
    return {"classes": json.dumps(properties).replace(str(run.parent), "/data").encode()}


def _models() -> Files:
    """One node of many ops, and the networks, where they are small."""
    found = [_whole(model) for model in seeds()]
    small = sorted({content for content in found if len(content) <= _MOST_MODEL_BYTES})
    chosen = Random(0).sample(small, _MOST_MODELS)
    return {f"{number:02}": content for number, content in enumerate([_whole(mlp()), *chosen])}


def _whole(model: Any) -> bytes:
    """With the shapes of its outputs, where ONNX can tell them: its checker asks for them."""
    content: bytes = onnx.shape_inference.infer_shapes(model).SerializeToString()
    return content


def _recipes() -> Files:
    between = b"\n%%%\n"
    digits = data_path("recipes", "digits.toml").read_bytes()
    extending = b'extends = "base.toml"\n[train]\nepochs = 2\n[model.head]\nreplace = "fc1"\nclasses = 4\n'
    overrides = (
        b"train.batch=4\ndata.augment.flip=horizontal\nmodel.classes=none\nupdate.mode=lora\ndata.mean=[0.5, 0.5]"
    )
    plain = b'name = "a"\n[model]\nsource = "zoo:digits-cnn"\n[data]\nsource = "bundled:digits"\n'
    return {
        "digits": digits,
        "extends": extending + between + plain,
        "overrides": between + b"" + between + overrides,
        "itself": b'extends = "recipe.toml"' + between + b'extends = "recipe.toml"',
        "inputs": plain
        + b'metric = "mse"\n[model.inputs]\nx = [3, 4]\n[train]\nloss = "mse"\nclass_weights = [1, 2.5]\n',
    }


def _targets() -> Files:
    return {name: data_path("targets", f"{name}.toml").read_bytes() for name in ("cortex-m7", "host")}


def _entries() -> Files:
    """Entries without their ids, which are hashes of the rest: what is changed is read all the same."""
    made = {"whole": entry(), "signed": entry(signature=Signature(key="a" * 64, value="b" * 128))}
    return {name: json.dumps({k: v for k, v in e.to_json().items() if k != "id"}).encode() for name, e in made.items()}


def _requests() -> Files:
    text, id_ = entry().text.encode(), entry().id.encode()
    host = b" HTTP/1.1\r\nHost: a\r\n"
    put = b"PUT /v1/schedules/" + id_ + host + b"Content-Length: " + str(len(text)).encode() + b"\r\n\r\n" + text
    return {
        "get": b"GET /v1/schedules/" + b"a" * 64 + host + b"Authorization: Bearer secret\r\n\r\n",
        "classes": b"GET /v1/classes/" + b"b" * 64 + host + b"\r\n",
        "changes": b"GET /v1/changes?since=abc.12" + host + b"Authorization: Bearer secret\r\n\r\n",
        "put": put,
        "short": put[:-100],
    }


def _logs(run: Path) -> Files:
    return {"run": (run / "log.jsonl").read_bytes()}


def _commands() -> Files:
    lines = (
        "fit digits --budget 1MB --target cortex-m7 train.batch=4 -q",
        "plan model.onnx --sweep --json --minimize 0.3",
        "train digits --epochs 3 --lr 0.1",
        "cache pull https://example.org --token-file token",
        "predict runs/a 1.png --json",
        "fitt",
        "check --deadline 50ms --energy 1J --co2 400",
    )
    return {str(number): line.replace(" ", "\n").encode() for number, line in enumerate(lines)}


_MAKERS: Mapping[str, Callable[[], Files]] = {
    "onnx_model": _models,
    "recipe": _recipes,
    "target_profile": _targets,
    "schedule_entry": _entries,
    "cache_server": _requests,
    "command_line": _commands,
    **data_files.MAKERS,
}
_OF_A_RUN: Mapping[str, Callable[[Path], Files]] = {
    "run_files": _run_files,
    "program": _program,
    "live_exchange": _exchange,
    "model_description": _descriptions,
    "step_log": _logs,
    "checkpoint": lambda run: {"run": (run / "checkpoint.bin").read_bytes()},
}


if __name__ == "__main__":
    main()
