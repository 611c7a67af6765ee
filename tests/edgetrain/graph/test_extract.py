from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import model_of
from edgetrain.graph.build import build_step
from edgetrain.graph.extract import Extracted, extract
from edgetrain.graph.ir import LOSS, Phase, Role, from_json, to_json, validate
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from tests.edgetrain.graph.small_models import BATCH, cnn_model, mlp_model, tied_model

MODELS = {"mlp": mlp_model, "cnn": cnn_model, "tied": tied_model}
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimizer": OptimizerOptions(kind="adam")},
    "momentum_clipped": {"optimizer": OptimizerOptions(momentum=0.9), "clip_norm": 1.0},
    "accumulating": {"accumulate": 4, "clip_norm": 1.0},
    "frozen": {"batchnorm": "frozen"},
}


def _extract(model: str, options: str) -> Extracted:
    built = build_step(MODELS[model](), TrainOptions(batch=BATCH, **OPTIONS[options]))
    return extract(built, model)


@pytest.fixture(scope="module", params=[(m, o) for m in MODELS for o in OPTIONS], ids=lambda p: f"{p[0]}-{p[1]}")
def extracted(request: pytest.FixtureRequest) -> Extracted:
    return _extract(*request.param)


def test_the_graph_is_valid_and_survives_its_json(extracted: Extracted) -> None:
    validate(extracted.graph)
    assert to_json(from_json(to_json(extracted.graph))) == to_json(extracted.graph)


def test_an_update_in_place_comes_after_every_other_reader(extracted: Extracted) -> None:
    for ops in extracted.graph.functions.values():
        for i, op in enumerate(ops):
            for name in op.writes:
                tensor = extracted.graph.tensors[name]
                if tensor.role in (Role.PARAMETER, Role.STATE):
                    assert not any(name in later.reads for later in ops[i + 1 :]), f"{name} is read after {op.name}"


def test_every_trained_tensor_is_written_once(extracted: Extracted) -> None:
    for ops in extracted.graph.functions.values():
        writes = [n for op in ops for n in op.writes]
        assert len(writes) == len(set(writes))


def test_every_kernel_is_called_and_every_call_has_its_kernel(extracted: Extracted) -> None:
    called = {op.kernel for ops in extracted.graph.functions.values() for op in ops}
    assert called == {kernel.symbol for kernel in extracted.kernels}


def test_a_kernel_that_writes_what_it_reads_knows_which_parameters_are_one_tensor(extracted: Extracted) -> None:
    aliases = {kernel.symbol: kernel.aliases for kernel in extracted.kernels}
    for ops in extracted.graph.functions.values():
        for op in ops:
            names = (*op.reads, *op.writes)
            assert all(names[read] == names[written] for read, written in aliases[op.kernel]), op.name
            assert {names[written] for _, written in aliases[op.kernel]} == set(op.reads) & set(op.writes), op.name


def test_every_persistent_tensor_that_is_read_has_a_value_or_is_an_input(extracted: Extracted) -> None:
    graph = extracted.graph
    for tensor in graph.persistent:
        if tensor.role in (Role.PARAMETER, Role.STATE, Role.CONSTANT):
            assert tuple(extracted.initial[tensor.name].shape) == tensor.shape
            assert str(extracted.initial[tensor.name].dtype) == tensor.dtype


def test_phases_run_from_forward_to_loss_and_the_loss_is_written_once(extracted: Extracted) -> None:
    ops = extracted.graph.functions["step"]
    phases = [op.phase for op in ops]
    assert phases.count(Phase.LOSS) == 1
    assert next(op for op in ops if LOSS in op.writes).phase is Phase.LOSS
    assert Phase.FORWARD in phases
    assert Phase.BACKWARD in phases
    assert Phase.UPDATE in phases


def test_evaluate_only_computes_forward(extracted: Extracted) -> None:
    assert {op.phase for op in extracted.graph.functions["evaluate"]} == {Phase.FORWARD}


@pytest.mark.parametrize(("model", "options"), [("cnn", "adam"), ("mlp", "accumulating")])
def test_extraction_is_deterministic(model: str, options: str) -> None:
    first, second = _extract(model, options), _extract(model, options)
    assert to_json(first.graph) == to_json(second.graph)
    assert [k.symbol for k in first.kernels] == [k.symbol for k in second.kernels]


def test_accumulation_splits_the_step_from_its_update() -> None:
    functions = _extract("mlp", "accumulating").graph.functions
    assert list(functions) == ["step", "apply", "evaluate"]
    assert not any(n.startswith("fc") for op in functions["step"] for n in op.writes)
    assert {"fc0.weight", "accumulated:fc0.weight"} <= {n for op in functions["apply"] for n in op.writes}


def _reshaping_model() -> Model:
    """The rows of `x` in another shape times `w`; the product, in yet another shape, is the output."""
    nodes = [
        helper.make_node("Reshape", ["x", "folded"], ["a"], name="fold"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="product"),
        helper.make_node("Reshape", ["b", "unfolded"], ["logits"], name="unfold"),
    ]
    stored = {
        "w": np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32),
        "folded": np.array([BATCH * 3, 2], np.int64),
        "unfolded": np.array([BATCH, 9], np.int64),
    }
    proto = model_of(nodes, inputs={"x": ["batch", 6]}, outputs=["logits"], stored=stored)
    return import_model(proto, name="reshaping", batch=BATCH)


def test_a_view_is_its_source_and_no_call_unless_it_is_a_result() -> None:
    graph = extract(build_step(_reshaping_model(), TrainOptions(batch=BATCH)), "reshaping").graph
    copies = {f: [op.writes for op in ops if op.source == "reshape"] for f, ops in graph.functions.items()}
    assert copies == {"step": [], "evaluate": [("evaluate.logits",)]}
    assert graph.functions["step"][0].reads == ("x", "w")
