"""Labels and ids out of bounds, from C and through the command's own stages: refused before anything runs."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.samples import NamedSamples, Part
from edgetrain.dataset.unlabelled import Item
from edgetrain.errors import DataError
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import LABELS, LEARNING_RATE, LOSS
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.program.artifact import Artifact
from edgetrain.recipes import recipe_for_model
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.trained import evaluate_run, open_run
from edgetrain.run.predict.model import predict_items
from edgetrain.run.predict.run_model import opened_run_model
from edgetrain.targets.profile import load_target
from tests.edgetrain.run.test_several_inputs import WORDS, arrays, write_model

BATCH, CLASSES = 8, 2
ERROR_DATA = -7
WRONG = (
    *(("ids", value) for value in (WORDS, -WORDS - 1, 10**9, -(2**63))),
    *((LABELS, value) for value in (CLASSES, -1, 10**9)),
)

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]


def job_of(folder: Path, cache: BuildCache, data: dict[str, Any]) -> Job:
    """`ids` through a table of `WORDS` rows."""
    write_model(folder / "two.onnx")
    np.savez(folder / "data.npz", **data)
    overrides = (f"train.batch={BATCH}", "train.epochs=1", "train.optimizer=sgd", "data.validation=0.25")
    recipe = recipe_for_model(str(folder / "two.onnx"), (f"data.source={folder / 'data.npz'}", *overrides))
    return Job(recipe=recipe, target=load_target("host"), cache=cache, threads=1)


class Caller:
    """An application in C, as far as the program can tell: it knows the manifest's offsets and `edge_*`."""

    def __init__(self, program: Artifact, library: ctypes.CDLL, arena: mmap.mmap) -> None:
        self._program, self._arena, self.library = program, arena, library

    def tensor(self, name: str) -> Any:
        record = self._program.manifest.tensors[name]
        assert record.offset is not None
        view = memoryview(self._arena)[record.offset : record.offset + record.nbytes]
        return np.frombuffer(view, record.dtype).reshape(record.shape)

    @property
    def persistent(self) -> bytes:
        """Parameters, state, constants, and what was put out."""
        return bytes(self._arena[: self._program.manifest.persistent_bytes])

    def step(self) -> float:
        assert self.library.edge_step() == 0, self.library.edge_error()
        return float(self.tensor(LOSS))


def write_batch(caller: Caller) -> None:
    rng = np.random.default_rng(7)
    caller.tensor("ids")[...] = rng.integers(-WORDS, WORDS, (BATCH, 2))
    caller.tensor("values")[...] = rng.standard_normal((BATCH, 3))
    caller.tensor(LABELS)[...] = rng.integers(0, CLASSES, BATCH)
    caller.tensor(LEARNING_RATE)[...] = 0.1


@contextmanager
def opened(program: Artifact, write: Callable[[Caller], None] = write_batch) -> Iterator[Caller]:
    library = ctypes.CDLL(str(program.library))
    library.edge_open.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p)
    library.edge_error.restype = ctypes.c_char_p
    arena = mmap.mmap(-1, program.manifest.arena_bytes)
    parameters = program.parameters.read_bytes()
    arena[: len(parameters)] = parameters
    address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    assert library.edge_open(address, len(arena), 1, None) == 0, library.edge_error()
    try:
        caller = Caller(program, library, arena)
        write(caller)
        yield caller
    finally:
        library.edge_close()


@pytest.fixture(scope="module")
def program(build_cache: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compile_job(job_of(tmp_path_factory.mktemp("bounds"), build_cache, arrays())).plan().build().program


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_refused_before_anything_runs_and_training_goes_on(
    program: Artifact, name: str, value: int
) -> None:
    with opened(program) as caller:
        losses = [caller.step(), caller.step()]
        expected = caller.persistent
    with opened(program) as caller:
        assert caller.step() == losses[0]
        tensor = caller.tensor(name).reshape(-1)
        good, tensor[5] = int(tensor[5]), value
        before = caller.persistent
        assert caller.library.edge_step() == ERROR_DATA
        assert caller.persistent == before
        words = caller.library.edge_error().decode()
        assert words.startswith(f"`{name}` holds {value} at index 5, not "), words
        tensor[5] = good
        assert caller.step() == losses[1]
        assert caller.persistent == expected


def test_evaluation_looks_at_ids_and_not_at_labels(program: Artifact) -> None:
    with opened(program) as caller:
        caller.tensor(LABELS)[...] = 10**9
        assert caller.library.edge_evaluate() == 0
        caller.tensor("ids")[2, 1] = WORDS
        assert caller.library.edge_evaluate() == ERROR_DATA


def test_the_engine_names_the_row_of_the_batch(program: Artifact, tmp_path: Path) -> None:
    with LocalEngine(program, threads=1, page_directory=tmp_path) as engine:
        engine.tensor("ids")[...] = 0
        engine.tensor("ids")[3, 1] = WORDS
        engine.tensor(LABELS)[...] = 0
        before = bytes(engine.saved)
        with pytest.raises(DataError, match="row 3 of the batch: `ids` holds 6, outside -6 to 5") as caught:
            engine.call("step")
        assert bytes(engine.saved) == before
        assert caught.value.exit_code == 5


def test_data_with_an_id_outside_of_the_table_is_refused_by_fit_with_its_sample(
    build_cache: BuildCache, tmp_path: Path
) -> None:
    data = arrays()
    data["x.ids"][17, 1] = WORDS
    with pytest.raises(DataError, match=r"^sample \d+( \(row 17 of the data\))?: `ids` holds 6, outside -6 to 5"):
        fit(job_of(tmp_path, build_cache, data), tmp_path / "run")


def test_a_trained_run_refuses_samples_and_predicts_the_others(build_cache: BuildCache, tmp_path: Path) -> None:
    data = arrays()
    fit(job_of(tmp_path, build_cache, data), tmp_path / "run")
    run = open_run(tmp_path / "run")
    part = three_samples(data)
    with pytest.raises(DataError, match=r"^sample 2: `ids` holds 600"):
        evaluate_run(run, part, threads=1)
    items = [Item(name=str(i), load=partial(part.features.__getitem__, i)) for i in range(3)]
    with opened_run_model(run, threads=1) as model:
        answers = list(predict_items(model, items))
    assert [bool(answer.error) for answer in answers] == [False, False, True]
    assert "`ids` holds 600" in answers[2].error


def three_samples(data: dict[str, Any]) -> Part:
    """The last one is wrong."""
    ids = data["x.ids"][:3].copy()
    ids[2, 0] = 600
    features = NamedSamples(arrays={"ids": ids, "values": data["x.values"][:3]})
    return Part(features=features, labels=data["y"][:3])
