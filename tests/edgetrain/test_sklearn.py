"""The estimators are what scikit-learn expects of one, and what a user does with one works."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgetrain.model.onnx_inference import outputs_of
from tests.edgetrain.cli.conftest import write_model
from tests.edgetrain.test_api import mlp
from tests.edgetrain.test_readme import ROOT, blocks

pytest.importorskip("sklearn", reason="needs scikit-learn")
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from edgetrain.sklearn import EdgeClassifier, EdgeRegressor

pytestmark = pytest.mark.compile

# In batches smaller than any check's data: the batch decides what is compiled, and checks bring 20 to 300 samples.
CLASSIFIER = EdgeClassifier(hidden_layers=(16,), batch_size=8, random_state=0)
REGRESSOR = EdgeRegressor(hidden_layers=(16,), batch_size=8, random_state=0)


@pytest.fixture(autouse=True)
def shared_cache(cache_home: Path, compiler_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    monkeypatch.chdir(tmp_path)


def checks(estimator: Any, *words: str) -> list[Any]:
    """scikit-learn's own checks of this estimator; with words only those whose name holds one. None is left out for
    failing."""
    found: list[Any] = []
    for _, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        # It tests arrays of other libraries, which SciPy must be told to take before it is imported.
        if name != "check_array_api_input" and (not words or any(word in name for word in words)):
            found.append(pytest.param(check, id=f"{name}-{len(found)}"))
    return found


@pytest.mark.parametrize("check", checks(CLASSIFIER))
@pytest.mark.filterwarnings("ignore")
def test_the_classifier_passes_scikit_learns_checks(check: Callable[[Any], None]) -> None:
    check(clone(CLASSIFIER))


# What has nothing to do with targets is checked on the classifier: both have it from one class, and compiling is slow.
@pytest.mark.parametrize("check", checks(REGRESSOR, "regressor", "supervised", "default", "tag", "pickle", "2d_"))
@pytest.mark.filterwarnings("ignore")
def test_the_regressor_passes_scikit_learns_checks(check: Callable[[Any], None]) -> None:
    check(clone(REGRESSOR))


def test_a_grid_search_over_a_pipeline_finds_the_better_learning_rate() -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipeline = make_pipeline(StandardScaler(), clone(CLASSIFIER))
    search = GridSearchCV(pipeline, {"edgeclassifier__learning_rate": [1e-6, 1e-2]}, cv=3)
    search.fit(x, names)
    assert search.best_params_ == {"edgeclassifier__learning_rate": 1e-2}
    assert search.best_score_ > 0.9
    best = search.best_estimator_[-1]
    assert list(best.classes_) == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(search.predict_proba(x).sum(axis=1), 1.0)
    assert set(search.predict(x)) <= set(names)


def test_a_pickled_estimator_predicts_the_same_and_holds_the_model_as_onnx() -> None:
    x, y = load_iris(return_X_y=True)
    fitted = clone(CLASSIFIER).set_params(epochs=2, budget="1MB").fit(x, y)
    assert fitted.report_.is_within_budget
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))
    onnx.checker.check_model(onnx.load_model_from_string(again.model_onnx_))
    assert len(again.loss_curve_) == again.report_.steps


def test_a_regressor_learns_targets_of_any_size() -> None:
    x, y = load_diabetes(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), clone(REGRESSOR))
    large = 1e6 + 1e4 * y
    assert pipeline.fit(x, large).score(x, large) > 0.4
    assert abs(pipeline.predict(x).mean() - large.mean()) < large.std()


@pytest.mark.parametrize("as_path", [True, False])
def test_a_model_of_the_users_own_gets_a_head_for_the_classes(as_path: bool, tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    x = rng.standard_normal((60, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0)  # four classes; the model has three outputs
    if as_path:
        onnx.save(mlp(), str(tmp_path / "mlp.onnx"))
    estimator = EdgeClassifier(str(tmp_path / "mlp.onnx") if as_path else mlp(), epochs=2).fit(x, y)
    assert estimator.predict_proba(x).shape == (60, 4)


def test_a_model_with_other_outputs_than_the_targets_is_refused(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"])
    path = write_model(tmp_path / "three.onnx", [node], {"w": np.ones((6, 3))})
    x = np.ones((40, 6), np.float32)
    with pytest.raises(ValueError, match="the model has 3 outputs, and the data needs 1"):
        EdgeRegressor(str(path), epochs=1).fit(x, np.arange(40.0))


def test_without_onnx_runtime_the_outputs_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.Generator(np.random.PCG64(0)).standard_normal((300, 6)).astype(np.float32)
    model = mlp().SerializeToString()
    expected = outputs_of(model, x)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    np.testing.assert_allclose(outputs_of(model, x), expected, rtol=1e-5, atol=1e-6)


def test_the_example_of_the_page_runs() -> None:
    (text,) = blocks(ROOT / "docs" / "scikit-learn.md", "python")
    names: dict[str, Any] = {}
    exec(compile(text, "scikit-learn.md", "exec"), names)
    assert names["search"].best_score_ > 0.9
