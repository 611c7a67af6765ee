"""Finished runs: what they learned, and what one does with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.api.told import warn
from edgetrain.dataset.in_memory import dataset_of, features_of
from edgetrain.drawing.table import to_html_table
from edgetrain.frameworks.torch_weights import load_into
from edgetrain.pipeline.own_program import open_own_run
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.evaluation_data import evaluation_data, evaluation_part
from edgetrain.run.files.finished import read_report
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import TrainedRun, evaluate_run, predict
from edgetrain.run.files.trained import open_run as open_trained
from edgetrain.run.files.trained_onnx import trained_onnx
from edgetrain.run.predict.prediction import Prediction
from edgetrain.run.predict.samples import predict_samples


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """A finished run. `edgetrain.open_run` opens its folder again, as do `edgetrain eval`, `predict` and `export`."""

    report: RunReport
    folder: Path
    trust_program: bool = False  # run the program in the folder, whoever built it

    def _opened(self) -> TrainedRun:
        return open_own_run(self.folder, trust_program=self.trust_program, notify=warn)

    def __repr__(self) -> str:
        return f"<Run in {self.folder}: {repr(self.report).strip('<>').partition(': ')[2]}>"

    def _repr_html_(self) -> str:
        rows = (*self.report.rows(), ("model", str(self.model_path)))
        return to_html_table(f"Run in {self.folder}", rows)

    @property
    def losses(self) -> tuple[float, ...]:
        """One for each step; of a run of more than 10,000 steps a curve of that many, whose steps the report has."""
        return self.report.losses

    @property
    def metrics(self) -> Mapping[str, float]:
        """On the test part of the data, by name; on the validation part where there is no test part."""
        return self.report.test

    @property
    def model_path(self) -> Path:
        """The trained model as ONNX; encrypted where the run is, and `edgetrain export` decrypts it."""
        return RunFolder(self.folder).model

    def predict(self, features: Any) -> Array:
        """The trained model's output for each sample: logits for a classifier, values in the units of the labels.

        `features`: an array, a list, a DataFrame, or samples by index. They are converted as in training. `classify`
        gives names and probabilities instead, and reads files.
        """
        run = self._opened()
        return predict(run, features_of(features, run.reading, run.recipe.data), threads=self.report.threads)

    def classify(self, samples: Any) -> list[Prediction]:
        """What the model says about each sample: names of classes with probabilities, or a value.

        `samples`: the path of a file or folder, several of them, or arrays or a DataFrame as for `predict`.
        A sample that cannot be read is a `Prediction` with an `error`; the others are predicted.
        """
        return predict_samples(self._opened(), samples, threads=self.report.threads)

    def evaluate(self, data: Any = None) -> Mapping[str, float]:
        """Loss and metric on `data` (as for `fit`), all of it; without, on the part of the run's own that it held out.

        Raises `UsageError` where there is none: arrays are not kept with a run.
        """
        run = self._opened()
        if data is None or isinstance(data, str | Path):
            dataset, _ = evaluation_data(run, None if data is None else str(data))
        else:
            section = dataclasses.replace(run.recipe.data, validation=0.0, limit=None)
            dataset = dataset_of(data, dataclasses.replace(run.recipe, data=section), reading=run.reading)
        return evaluate_run(run, evaluation_part(dataset)[0], threads=self.report.threads)

    def load_into(self, module: Any) -> None:
        """Puts the trained weights and statistics into a PyTorch module, by the names of its `state_dict`.

        Raises `UsageError`, before anything is changed, where names or shapes do not fit, `DataError` for a model that
        the run did not write.
        """
        load_into(trained_onnx(RunFolder(self.folder)), module)


def open_run(folder: str | Path, *, trust_program: bool = False) -> Run:
    """The finished run in that folder, as `fit` returned it. Raises `DataError` where there is none.

    A program that was not built on this machine is built again before it is used, unless `trust_program` says that
    the one in the folder may run: it is machine code.
    """
    path = Path(folder)
    open_trained(path)  # a folder whose program or checkpoint is damaged is no run to work with
    return Run(report=read_report(RunFolder(path)), folder=path, trust_program=trust_program)
