from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import edgetrain
from edgetrain.api import override_texts
from edgetrain.api.overrides import toml_text
from edgetrain.dataset.samples import from_arrays
from edgetrain.errors import DataError, ModelError, PlanInfeasibleError, UsageError

SAMPLES, FEATURES, CLASSES = 320, 6, 3


@pytest.fixture
def workplace(tmp_path: Path, cache_home: Path, compiler_here: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    return tmp_path


def mlp() -> onnx.ModelProto:
    rng = np.random.Generator(np.random.PCG64(0))
    weights = {
        "w1": rng.standard_normal((FEATURES, 16)) * 0.4,
        "b1": np.zeros(16),
        "w2": rng.standard_normal((16, CLASSES)) * 0.4,
        "b2": np.zeros(CLASSES),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"]),
            helper.make_node("Tanh", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "w2", "b2"], ["y"]),
        ],
        "small mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def arrays() -> tuple[Any, Any]:
    x = np.random.Generator(np.random.PCG64(1)).standard_normal((SAMPLES, FEATURES)).astype(np.float32)
    return x, x[:, :CLASSES].argmax(axis=1)


class Counting(edgetrain.Callback):
    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, step: int, logs: Any) -> None:
        self.steps = step


@pytest.mark.parametrize(
    ("callbacks", "named"),
    [(print, "builtin_function_or_method"), ([print], "builtin_"), (3, "int"), (Counting, "class")],
)
def test_what_is_no_callback_is_refused_before_anything_is_done(callbacks: Any, named: str, workplace: Path) -> None:
    with pytest.raises(UsageError, match=f"`?{named}.* in `callbacks` is no callback"):
        edgetrain.fit(mlp(), arrays(), callbacks=callbacks)
    assert not Path("runs").exists()


@pytest.mark.compile
def test_rows_of_a_table_are_classified_by_the_names_of_its_columns(workplace: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    x, y = arrays()
    frame = pandas.DataFrame(x, columns=list("abcdef"[: x.shape[1]]))
    run = edgetrain.fit(mlp(), frame.assign(label=y), train_epochs=1)
    turned = frame.assign(label=y)[[*frame.columns[::-1], "label"]]
    wanted = [p.probabilities for p in run.classify(x[:3])]
    assert [p.probabilities for p in run.classify(frame.head(3))] == wanted
    assert [p.probabilities for p in run.classify(turned.head(3))] == wanted


@pytest.mark.compile
def test_a_model_in_memory_trains_on_arrays_and_predicts_as_onnx_runtime_does(workplace: Path) -> None:
    x, y = arrays()
    counting = Counting()
    run = edgetrain.fit(mlp(), (x, y), budget="1MB", callbacks=[counting], train_epochs=3, train_learning_rate=0.1)
    assert run.folder == Path("runs/small-mlp")
    assert run.report.is_within_budget
    assert counting.steps == len(run.losses) == 3 * (288 // 32)
    assert run.losses[-1] < run.losses[0]
    session = onnxruntime.InferenceSession(str(run.model_path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run.predict(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    again = edgetrain.open_run(run.folder)
    assert again == run
    assert again.evaluate((x, y))["accuracy"] == np.mean(
        [p.label == str(c) for p, c in zip(again.classify(x), y, strict=True)]
    )
    np.savetxt("new.csv", x[:3], delimiter=";", header="a;b;c;d;e;f", comments="")
    by_file, by_array = again.classify(["new.csv", "gone.csv"]), again.classify(x[:3])
    assert [p.name for p in by_file] == ["new.csv:2", "new.csv:3", "new.csv:4", "gone.csv"]
    assert (
        [p.label for p in by_file[:3]]
        == [p.label for p in by_array]
        == [p.label for p in again.classify(x[:3].tolist())]
    )
    assert "there is no file gone.csv" in by_file[3].error
    frames = pytest.importorskip("pandas", reason="needs pandas")
    by_frame = again.classify(frames.DataFrame(x[:3], columns=list("abcdef")))
    assert [(p.name, p.probabilities) for p in by_frame] == [(p.name, p.probabilities) for p in by_array]
    with pytest.raises(UsageError, match="data in Python's memory"):
        again.evaluate()


def renamed(model: onnx.ModelProto, names: dict[str, str]) -> onnx.ModelProto:
    """The model with other names for its tensors."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for named in (*copy.graph.input, *copy.graph.output, *copy.graph.initializer):
        named.name = names.get(named.name, named.name)
    for node in copy.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    return copy


@pytest.mark.compile
def test_a_model_whose_names_are_those_of_training_trains_to_the_same_bits(workplace: Path) -> None:
    x, y = arrays()
    names = {"x": "train.labels", "y": "train.loss", "w1": "momentum:w2", "b1": "evaluate.train.loss", "b2": "file:b2"}
    settings: dict[str, Any] = {"train_epochs": 1, "train_optimizer": "sgd", "train_momentum": 0.9}
    plain = edgetrain.fit(mlp(), (x, y), out="plain", **settings)
    clashing = edgetrain.fit(renamed(mlp(), names), ({"train.labels": x}, y), out="clashing", **settings)
    assert clashing.report.parameters_sha256 == plain.report.parameters_sha256
    assert clashing.losses == plain.losses
    assert onnx.load(str(clashing.model_path)).graph == renamed(onnx.load(str(plain.model_path)), names).graph
    assert np.array_equal(clashing.predict({"train.labels": x}), plain.predict(x))
    assert clashing.evaluate(({"train.labels": x}, y)) == plain.evaluate((x, y))
    session = onnxruntime.InferenceSession(str(clashing.model_path), providers=["CPUExecutionProvider"])
    found = session.run(["train.loss"], {"train.labels": x})[0]
    np.testing.assert_allclose(clashing.predict({"train.labels": x}), found, rtol=1e-4, atol=1e-5)


@pytest.mark.compile
def test_every_form_of_the_same_data_trains_to_the_same_bits(workplace: Path) -> None:
    x, y = arrays()
    np.savez("data.npz", x=x, y=y)
    forms: dict[str, Any] = {
        "arrays": (x, y),
        "mapping": {"x_train": x, "y_train": y},
        "path": "data.npz",
        "batches": [(x[i : i + 40], y[i : i + 40]) for i in range(0, SAMPLES, 40)],
        "generator": ((x[i : i + 40], y[i : i + 40]) for i in range(0, SAMPLES, 40)),
        "dataset": from_arrays(x, y, validation=0.1),
    }
    onnx.save(mlp(), "mlp.onnx")
    shas = {
        form: edgetrain.fit("mlp.onnx", data, out=form, train_epochs=1).report.parameters_sha256
        for form, data in forms.items()
    }
    assert len(set(shas.values())) == 1, shas


@pytest.mark.compile
def test_a_recipe_by_name_brings_its_own_data_and_resumes(workplace: Path) -> None:
    first = edgetrain.fit("digits", out="run", train_epochs=1, data_limit=256)
    assert set(first.metrics) == {"loss", "accuracy"}
    again = edgetrain.fit("digits", out="run", resume=True, train_epochs=2, data_limit=256)
    assert again.losses[:7] == first.losses
    assert len(again.losses) == 14
    opened = edgetrain.open_run("run")
    assert opened == again
    assert opened.evaluate() == again.metrics


@pytest.mark.compile
def test_explain_plans_without_running(workplace: Path) -> None:
    explanation = edgetrain.plan("digits", budget="1MB")
    assert explanation.fits
    assert explanation.budget_bytes == 1_000_000
    assert edgetrain.plan(mlp(), train_batch=4).peak_bytes < edgetrain.plan(mlp(), train_batch=64).peak_bytes
    with pytest.raises(PlanInfeasibleError):
        edgetrain.plan("digits", budget=1000)
    assert not list(workplace.iterdir())


def test_a_finished_run_is_never_overwritten(workplace: Path) -> None:
    (workplace / "report.json").write_text("{}")
    with pytest.raises(UsageError, match="has finished"):
        edgetrain.fit("digits", out=workplace)


@pytest.mark.parametrize(
    ("model", "data", "kind", "told"),
    [
        ("gone.onnx", None, ModelError, "no model file"),
        (42, None, UsageError, "`int` is not a model"),
        ("digits", 42, DataError, "`int` is not data"),
        ("digits", {"x_train": 1}, DataError, "no `y_train`"),
        ("zoo:digits-cnn", None, UsageError, "needs data"),
    ],
)
def test_what_is_no_model_or_no_data_is_said_at_once(
    model: Any, data: Any, kind: type[Exception], told: str, workplace: Path
) -> None:
    with pytest.raises(kind, match=told):
        edgetrain.fit(model, data)


@pytest.mark.compile
def test_a_run_that_shares_and_adapts_trains_inside_its_share(workplace: Path) -> None:
    x, y = np.zeros((8, 1, 8, 8), np.float32), np.arange(8) % 10
    words: dict[str, Any] = {
        "train_epochs": 1,
        "train_batch": 4,
        "model_source": "zoo:digits-cnn",
        "data_validation": 0.0,
    }
    with pytest.raises(UsageError, match="`desk` is not a share"):
        edgetrain.fit("digits", (x, y), share="desk", **words)
    run = edgetrain.fit("digits", (x, y), share="desk=600kB", adapt=True, **words)
    assert run.report.is_within_budget
    assert run.report.budget_bytes is not None
    assert run.report.measured_peak_bytes <= run.report.budget_bytes <= 600_000


def test_every_argument_that_is_no_recipe_key_is_named() -> None:
    with pytest.raises(UsageError, match=r"`epochs` \(did you mean `train_epochs`.*`train_`"):
        override_texts({"epochs": 3, "train_": 1, "train_batch": 2})


def test_keyword_arguments_are_overrides() -> None:
    texts = override_texts({"train_learning_rate": 0.1, "data_limit": None, "update_names": ["a*"], "metric": "mse"})
    assert texts == ("train.learning_rate=0.1", "data.limit=none", 'update.names=["a*"]', 'metric="mse"')


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data_augment_flip", "data.augment.flip"),
        ("data_text_length", "data.text.length"),
        ("data_test_limit", "data.test_limit"),
        ("data_augment", "data.augment"),
        ("train_label_smoothing", "train.label_smoothing"),
    ],
)
def test_keys_of_a_table_within_a_section_are_arguments_too(name: str, expected: str) -> None:
    assert override_texts({name: 1}) == (f"{expected}=1",)


_SCALARS = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"))


@given(st.recursive(_SCALARS | _TEXT, lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner), max_leaves=8))
def test_a_value_reads_back_from_the_toml_it_was_written_as(value: object) -> None:
    assert tomllib.loads(f"value = {toml_text(value)}")["value"] == value


def test_a_folder_that_is_no_run_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run folder"):
        edgetrain.open_run(tmp_path)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute `ft`"):
        _ = edgetrain.ft
