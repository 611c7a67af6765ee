"""A table of floats whose first column is a year that the model looks up: from C, and from data to prediction."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgetrain.dataset.samples import Part
from edgetrain.dataset.unlabelled import Item
from edgetrain.errors import DataError
from edgetrain.files.build_cache import BuildCache
from edgetrain.model.onnx_build import GraphWriter
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.program.artifact import Artifact
from edgetrain.recipes import recipe_for_model
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.synthetic import fill_synthetic
from edgetrain.run.files.trained import evaluate_run, open_run
from edgetrain.run.predict.model import predict_items
from edgetrain.run.predict.run_model import opened_run_model
from edgetrain.targets.profile import load_target
from tests.edgetrain.test_c_bounds import BATCH, ERROR_DATA, Caller, opened

FIRST, YEARS, SAMPLES, COLUMNS = 1900, 10, 64, 4

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]


def write_model(path: Path) -> None:
    """The year's vector beside the other columns, into one dense layer."""
    rng = np.random.default_rng(0)
    writer = GraphWriter()
    table = writer.weight("table", rng.standard_normal((YEARS, 4)).astype(np.float32))
    first, one, end = (writer.constant(f"at{n}", np.array([n])) for n in (0, 1, COLUMNS))
    year = writer.node("Cast", [writer.node("Slice", ["x", first, one, one], "column")], "year", to=TensorProto.INT64)
    place = writer.node("Sub", [year, writer.constant("first", np.array(FIRST))], "place")
    vector = writer.node("Flatten", [writer.node("Gather", [table, place], "vector", axis=0)], "flat", axis=1)
    others = writer.node("Slice", ["x", one, end, one], "others")
    joined = writer.node("Concat", [vector, others], "features", axis=1)
    weight = rng.standard_normal((2, 4 + COLUMNS - 1)).astype(np.float32)
    writer.dense(joined, weight, np.zeros(2, np.float32), "logits", layer="head")
    onnx.save(writer.finish_with("years", inputs={"x": (TensorProto.FLOAT, [COLUMNS])}, classes=2), path)


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((SAMPLES, COLUMNS)).astype(np.float32)
    x[:, 0] = rng.integers(FIRST, FIRST + YEARS, SAMPLES)
    return {"x": x, "y": (x[:, 0] % 2).astype(np.int64)}


def job_of(folder: Path, cache: BuildCache, data: dict[str, Any]) -> Job:
    write_model(folder / "years.onnx")
    np.savez(folder / "data.npz", **data)
    overrides = (f"train.batch={BATCH}", "train.epochs=1", "train.optimizer=sgd", "data.validation=0.25")
    recipe = recipe_for_model(str(folder / "years.onnx"), (f"data.source={folder / 'data.npz'}", *overrides))
    return Job(recipe=recipe, target=load_target("host"), cache=cache, threads=1)


@pytest.fixture(scope="module")
def program(build_cache: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compile_job(job_of(tmp_path_factory.mktemp("years"), build_cache, arrays())).plan().build().program


def write_batch(caller: Caller) -> None:
    caller.tensor("x")[...] = arrays()["x"][:BATCH]
    caller.tensor("train.labels")[...] = 0
    caller.tensor("train.learning_rate")[...] = 0.1


@pytest.mark.parametrize("value", [FIRST - YEARS - 1, FIRST + YEARS, 0, -1e30, np.inf, -np.inf, np.nan])
def test_a_wrong_year_is_refused_before_anything_runs_and_other_columns_may_hold_it(
    program: Artifact, value: float
) -> None:
    with opened(program, write_batch) as caller:
        caller.tensor("x")[3, 0] = value
        before = caller.persistent
        assert caller.library.edge_step() == ERROR_DATA
        assert caller.library.edge_evaluate() == ERROR_DATA
        assert caller.persistent == before
        assert f" at index {3 * COLUMNS}, not " in caller.library.edge_error().decode()
        write_batch(caller)
        caller.tensor("x")[3, 1] = value
        assert caller.library.edge_evaluate() == 0


@pytest.mark.parametrize("value", [FIRST - YEARS, FIRST + YEARS - 0.5, FIRST + 0.25])
def test_what_is_cut_to_a_year_of_the_table_is_taken(program: Artifact, value: float) -> None:
    with opened(program, write_batch) as caller:
        caller.tensor("x")[3, 0] = value
        assert caller.library.edge_step() == 0


def test_the_engine_names_the_row_and_the_column(program: Artifact, tmp_path: Path) -> None:
    with LocalEngine(program, threads=1, page_directory=tmp_path) as engine:
        engine.tensor("x")[...] = FIRST
        engine.tensor("x")[3, 0] = 12.5
        engine.tensor("train.labels")[...] = 0
        with pytest.raises(DataError, match=r"row 3 of the batch: `x` holds 12\.5 at \[0\], outside 1890 to 1909\.99"):
            engine.call("step")


def test_made_up_batches_are_within_the_bounds(program: Artifact, tmp_path: Path) -> None:
    with LocalEngine(program, threads=1, page_directory=tmp_path) as engine:
        fill_synthetic(engine, program.graph, loss="cross-entropy", seed=0)
        engine.call("step")


def test_data_with_a_wrong_year_is_refused_by_fit_with_its_sample(build_cache: BuildCache, tmp_path: Path) -> None:
    data = arrays()
    data["x"][17, 0] = 2026
    match = r"^sample \d+( \(row 17 of the data\))?: `x` holds 2026 at \[0\], outside 1890 to 1909.9999"
    with pytest.raises(DataError, match=match) as caught:
        fit(job_of(tmp_path, build_cache, data), tmp_path / "run")
    assert caught.value.exit_code == 5


def test_a_trained_run_refuses_a_sample_and_predicts_the_others(build_cache: BuildCache, tmp_path: Path) -> None:
    """Fewer than a batch: rows that nobody fills are no reason to refuse it."""
    data = arrays()
    fit(job_of(tmp_path, build_cache, data), tmp_path / "run")
    run = open_run(tmp_path / "run")
    x = data["x"][:3].copy()
    x[1, 0] = 600
    with pytest.raises(DataError, match=r"^sample 1: `x` holds 600 at \[0\]"):
        evaluate_run(run, Part(features=x, labels=data["y"][:3]), threads=1)
    items = [Item(name=str(i), load=partial(x.__getitem__, i)) for i in range(3)]
    with opened_run_model(run, threads=1) as model:
        answers = list(predict_items(model, items))
        alone = [next(iter(predict_items(model, [item]))) for item in items]
    assert [bool(answer.error) for answer in answers] == [False, True, False]
    assert "`x` holds 600 at [0]" in answers[1].error
    assert [a.probabilities for a in alone] == [a.probabilities for a in answers]
