"""Claims about run folders from strangers: their machine code does not run here, what it was made from is built."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import DataError
from edgetrain.files.build_cache import BuildCache, file_sha256
from edgetrain.files.sealed import parse_sealed, sealed
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.own_program import open_own_run, with_model_of_run
from edgetrain.program.known_programs import is_known_program, remember_program
from edgetrain.program.replace_folder import MANIFEST
from edgetrain.recipes import load_recipe
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import open_run, predict
from edgetrain.targets.profile import HOST, load_target

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("compiler_here")]

X = np.random.default_rng(0).random((4, 1, 8, 8), dtype=np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, build_cache: BuildCache) -> Path:
    """A run that this cache built."""
    folder = tmp_path_factory.mktemp("own") / "run"
    recipe = load_recipe("digits", ["train.epochs=1", "data.limit=64"])
    fit(Job(recipe=recipe, target=load_target(HOST), threads=1, cache=build_cache), folder)
    return folder


@pytest.fixture
def stranger(trained: Path, tmp_path: Path) -> Path:
    """The same run with another library, for which its manifest vouches."""
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    program = folder / "program"
    manifest = json.loads((program / MANIFEST).read_text())
    (program / manifest["library"]).write_bytes(b"this would be the code of a stranger")
    manifest["files"][manifest["library"]] = file_sha256(program / manifest["library"])
    (program / MANIFEST).write_text(json.dumps(manifest))
    return folder


def test_a_run_of_this_cache_is_used_as_it_is(trained: Path, build_cache: BuildCache) -> None:
    said: list[str] = []
    run = open_own_run(trained, cache=build_cache, notify=said.append)
    assert run == open_run(trained)
    assert not said


def test_a_replaced_library_does_not_run_and_the_program_is_built_again(
    stranger: Path, trained: Path, build_cache: BuildCache
) -> None:
    said: list[str] = []
    run = open_own_run(stranger, cache=build_cache, notify=said.append)
    assert run.program.directory.is_relative_to(build_cache.root)
    assert "was not built here" in said[0]
    assert np.array_equal(predict(run, X, threads=1), predict(open_run(trained), X, threads=1))


def test_who_trusts_the_folder_gets_its_own_program(stranger: Path, build_cache: BuildCache) -> None:
    run = open_own_run(stranger, cache=build_cache, trust_program=True)
    assert run.program.directory == stranger / "program"


def test_a_program_that_cannot_be_built_again_is_refused(stranger: Path, build_cache: BuildCache) -> None:
    recipe = parse_sealed((stranger / "recipe.json").read_text())
    recipe["model"]["source"] = "/nothing/here.onnx"
    (stranger / "recipe.json").write_text(sealed(json.dumps(recipe)))
    (stranger / "model.onnx").unlink()
    with pytest.raises(DataError, match="cannot be built again") as caught:
        open_own_run(stranger, cache=build_cache)
    assert "cannot read the model `/nothing/here.onnx`" in caught.value.why
    assert "--trust-program" in caught.value.fix


def test_a_recipe_that_does_not_belong_to_the_checkpoint_is_refused(stranger: Path, build_cache: BuildCache) -> None:
    recipe = parse_sealed((stranger / "recipe.json").read_text())
    recipe["train"] |= {"optimizer": "sgd", "momentum": 0.0}
    (stranger / "recipe.json").write_text(sealed(json.dumps(recipe)))
    (stranger / "schedules.json").unlink()
    with pytest.raises(DataError, match="cannot be built again") as caught:
        open_own_run(stranger, cache=build_cache)
    assert "other parameters" in caught.value.why


def test_a_model_that_is_not_here_is_taken_from_the_run(trained: Path) -> None:
    recipe = open_run(trained).recipe
    gone = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, source="/nothing/here.onnx", classes=3))
    found = with_model_of_run(gone, RunFolder(trained)).model
    assert (found.source, found.classes) == (str((trained / "model.onnx").resolve()), None)
    assert with_model_of_run(recipe, RunFolder(trained)) == recipe


def test_only_exactly_what_was_built_is_known(trained: Path, stranger: Path, tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    own, other = open_run(trained).program, open_run(stranger).program
    remember_program(cache, own)
    assert is_known_program(cache, own)
    assert not is_known_program(cache, other)
