"""Estimators for scikit-learn: `EdgeClassifier` and `EdgeRegressor`. Needs `pip install 'edgetrain[sklearn]'`.

    from edgetrain.sklearn import EdgeClassifier
    pipeline = make_pipeline(StandardScaler(), EdgeClassifier(hidden_layers=(32,), budget="1MB"))
    pipeline.fit(x, y).score(x, y)

An estimator trains as `edgetrain.fit` does, in a folder that does not last, and keeps the trained model as ONNX: it can
be pickled, and predicts on machines without a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from edgetrain.api import fit as fit_model
from edgetrain.files.scratch import scratch_folder
from edgetrain.model.multilayer import multilayer_perceptron
from edgetrain.model.onnx_inference import declared_outputs, outputs_of
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained_onnx import trained_onnx

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
except ImportError as error:
    raise ImportError("edgetrain.sklearn needs scikit-learn 1.6 or newer: pip install 'edgetrain[sklearn]'") from error

_MOST_SEED = 2**31 - 1


class _EdgeEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both have in common. Attributes that end in `_` are there after `fit`, as in every estimator."""

    model_onnx_: bytes
    report_: RunReport
    n_features_in_: int

    def __init__(
        self,
        model: Any = None,
        *,
        hidden_layers: Sequence[int] = (64,),
        epochs: int = 30,
        batch_size: int = 32,
        learning_rate: float = 0.005,
        optimizer: str = "adam",
        budget: str | int | None = None,
        threads: int | None = None,
        overrides: Mapping[str, object] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        """`model`: as for `edgetrain.fit`; None is a network of dense layers, `hidden_layers` wide.

        `overrides`: other values of the recipe by name, like `{"train_clip_norm": 1.0}`. `random_state` decides the
        first weights and the order of the samples; None is 0, so that a fit can be repeated.
        """
        self.model = model
        self.hidden_layers = hidden_layers
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.budget = budget
        self.threads = threads
        self.overrides = overrides
        self.random_state = random_state
        self.verbose = verbose

    @property
    def loss_curve_(self) -> tuple[float, ...]:
        """One for each step."""
        check_is_fitted(self)
        return self.report_.losses

    @property
    def n_iter_(self) -> int:
        """The epochs done, as in scikit-learn's own networks."""
        check_is_fitted(self)
        return max(1, round(self.report_.epochs))

    def _train(self, x: Array, y: Array, *, outputs: int, loss: str, metric: str) -> None:
        seed = 0 if self.random_state is None else check_random_state(self.random_state).randint(_MOST_SEED)
        values: dict[str, Any] = {
            "train_epochs": self.epochs,
            "train_batch": min(self.batch_size, len(x)),
            "train_learning_rate": float(self.learning_rate),
            "train_optimizer": self.optimizer,
            "train_loss": loss,
            "train_seed": seed,
            "data_validation": 0.0,
            "metric": metric,
            **self._head(outputs),
            **(self.overrides or {}),
        }
        model = self.model
        if model is None:
            model = multilayer_perceptron(x.shape[1], tuple(self.hidden_layers), outputs, seed=seed)
        with scratch_folder("estimator") as folder:
            run = fit_model(
                model,
                (x, y),
                out=folder / "run",
                budget=self.budget,
                threads=self.threads,
                progress=bool(self.verbose),
                **values,
            )
            self.model_onnx_, self.report_ = trained_onnx(RunFolder(run.folder)), run.report
        found = outputs_of(self.model_onnx_, x[:1]).size
        if found != outputs:
            raise ValueError(_wrong_size(found, outputs))

    def _head(self, outputs: int) -> Mapping[str, object]:
        """What the recipe says about the model's last layer. Raises `ValueError` for a model of another size."""
        own = declared_outputs(self.model)
        if own is not None and own != outputs:
            raise ValueError(_wrong_size(own, outputs))
        return {}

    def _samples(self, x: Any) -> Array:
        """Checked, as it was for `fit`."""
        check_is_fitted(self)
        samples: Array = validate_data(self, x, dtype=np.float32, reset=False, allow_nd=self.model is not None)
        return samples

    def _outputs(self, x: Array) -> Array:
        return outputs_of(self.model_onnx_, x)


class EdgeClassifier(ClassifierMixin, _EdgeEstimator):  # type: ignore[misc]
    """A classifier that trains inside a memory budget. Labels may be numbers or texts."""

    classes_: Array

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803  # scikit-learn's name
        """Raises `ValueError` for data that is none, and the `EdgetrainError` of `edgetrain.fit`."""
        x, labels = validate_data(self, X, y, dtype=np.float32, allow_nd=self.model is not None)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"the labels hold one class, {self.classes_[0]!r}; a classifier needs two or more")
        self._train(x, numbers.astype(np.int64), outputs=len(self.classes_), loss="cross-entropy", metric="accuracy")
        return self

    def _head(self, outputs: int) -> Mapping[str, object]:
        """A new head for a model whose own has another size; the names of a zoo or recipe do not tell theirs."""
        own = declared_outputs(self.model)
        return {"model_classes": outputs} if own is not None and own != outputs else {}

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """A column for each of `classes_`."""
        scores = self._outputs(self._samples(X)).astype(np.float64)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Array = shares / shares.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, X: Any) -> Array:  # noqa: N803
        best = self.predict_proba(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels


class EdgeRegressor(RegressorMixin, _EdgeEstimator):  # type: ignore[misc]
    """A regressor that trains inside a memory budget. Targets are scaled for training, and back for predicting."""

    target_mean_: Array
    target_scale_: Array

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Raises `ValueError` for data that is none, and the `EdgetrainError` of `edgetrain.fit`."""
        x, targets = validate_data(
            self, X, y, dtype=np.float32, multi_output=True, y_numeric=True, allow_nd=self.model is not None
        )
        targets = np.asarray(targets, np.float64)
        self._is_single = targets.ndim == 1
        columns = targets.reshape(len(targets), -1)
        self.target_mean_, spread = columns.mean(axis=0), columns.std(axis=0)
        self.target_scale_ = np.where(spread > 0, spread, 1.0)
        scaled = ((columns - self.target_mean_) / self.target_scale_).astype(np.float32)
        self._train(x, scaled, outputs=columns.shape[1], loss="mse", metric="mse")
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        outputs = self._outputs(self._samples(X)).reshape(-1, len(self.target_scale_))
        values: Array = outputs * self.target_scale_ + self.target_mean_
        return values[:, 0] if self._is_single else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _wrong_size(found: int, wanted: int) -> str:
    return (
        f"the model has {found} outputs, and the data needs {wanted}: export it with as many, or let it have a new "
        f"last layer with overrides={{'model_classes': {wanted}}} where that is 2 or more"
    )
