"""Claims about how many classes a model tells apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import DataError
from edgetrain.files.build_cache import BuildCache
from edgetrain.model.class_outputs import READING_KEY, ClassOutputs
from edgetrain.model.head import HeadSize
from edgetrain.pipeline.classes import DataClasses, choose_classes, with_classes
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.resolve import resolve_without_data
from edgetrain.recipes import recipe_for_model
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import open_run, predict, read_recipe
from edgetrain.targets.profile import load_target

NAMES = ("ant", "bee", "cat")
MODEL = ClassOutputs(count=10, head=HeadSize(name="fc", inputs=512, outputs=10))
SMALL = ClassOutputs(count=2, head=HeadSize(name="fc", inputs=512, outputs=2))
FIXED = ClassOutputs(count=10, why="`y` comes from Relu")


def test_classes_with_names_replace_a_larger_head_and_say_so() -> None:
    choice = choose_classes(MODEL, DataClasses(count=3, names=NAMES), keep_head=False, where="photos")
    assert choice.classes == 3
    assert choice.said == (
        "the model tells 10 classes apart and the data has 3: its last layer (`fc`, 512 → 10) is replaced by a new "
        "one, 512 → 3; `model.keep_head=true` keeps it"
    )


@pytest.mark.parametrize("names", [NAMES, ()])
def test_too_few_outputs_are_replaced_whether_classes_have_names_or_not(names: tuple[str, ...]) -> None:
    choice = choose_classes(SMALL, DataClasses(count=3, names=names), keep_head=False, where="photos")
    assert choice.classes == 3
    assert "keep_head" not in choice.said


def test_numbers_may_be_some_of_the_models_own_classes() -> None:
    choice = choose_classes(MODEL, DataClasses(count=3), keep_head=False, where="a.npz")
    assert choice.classes is None
    assert "keeps its last layer; `model.classes=3` gives it a new one" in choice.said


def test_as_many_classes_as_outputs_need_no_word() -> None:
    choice = choose_classes(MODEL, DataClasses(count=10), keep_head=False, where="a.npz")
    assert (choice.classes, choice.order, choice.said) == (None, (), "")


def test_a_head_is_kept_when_asked() -> None:
    choice = choose_classes(MODEL, DataClasses(count=3, names=NAMES), keep_head=True, where="photos")
    assert choice.said == (
        "the model tells 10 classes apart and the data has 3: it keeps its last layer, as `model.keep_head` says"
    )
    assert choice.classes is None
    with pytest.raises(DataError, match="3 classes and the model tells 2 apart") as caught:
        choose_classes(SMALL, DataClasses(count=3, names=NAMES), keep_head=True, where="photos")
    assert "model.keep_head=false" in caught.value.fix


def test_a_head_that_cannot_be_replaced_stays_and_the_reason_is_told() -> None:
    choice = choose_classes(FIXED, DataClasses(count=3, names=NAMES), keep_head=False, where="photos")
    assert choice.classes is None
    assert "cannot be replaced (`y` comes from Relu)" in choice.said
    with pytest.raises(DataError, match="12 classes") as caught:
        choose_classes(FIXED, DataClasses(count=12), keep_head=False, where="a.npz")
    assert "model.classes=12 model.head=LAYER" in caught.value.fix


def test_classes_that_the_model_knows_by_name_keep_its_head_and_its_order() -> None:
    model = ClassOutputs(count=3, names=("cat", "ant", "bee"), head=MODEL.head)
    choice = choose_classes(model, DataClasses(count=3, names=NAMES), keep_head=False, where="photos")
    assert (choice.classes, choice.order, choice.said) == (None, ("cat", "ant", "bee"), "")
    some = choose_classes(model, DataClasses(count=2, names=("ant", "bee")), keep_head=False, where="photos")
    assert (some.classes, some.order) == (None, ("cat", "ant", "bee"))
    assert "knows the data's 2 classes by name, among 3" in some.said


def test_outputs_that_get_other_names_are_told() -> None:
    model = ClassOutputs(count=3, names=("bee", "cat", "dog"), head=MODEL.head)
    choice = choose_classes(model, DataClasses(count=3, names=NAMES), keep_head=False, where="photos")
    assert (choice.classes, choice.order) == (None, ())
    assert "what it knew as `bee` becomes `ant`; `model.classes=3` gives it a new last layer" in choice.said


def test_gaps_are_numbers_that_no_part_holds() -> None:
    def part(*labels: int) -> Part:
        return Part(features=np.zeros((len(labels), 1), np.float32), labels=np.array(labels))

    whole = DataClasses.of(Dataset(name="a", train=part(0, 2), validation=part(1)))
    assert whole is not None
    assert (whole.count, whole.has_gaps) == (3, False)
    broken = DataClasses.of(Dataset(name="a", train=part(0, 7)))
    assert broken is not None
    assert (broken.count, broken.has_gaps) == (8, True)
    values = Part(features=np.zeros((2, 1), np.float32), labels=np.array([0.5, 1.0], np.float32))
    assert DataClasses.of(Dataset(name="a", train=values)) is None


def write_model(path: Path, classes: int, names: tuple[str, ...] = ()) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "fc.weight", "fc.bias"], ["y"], name="fc", transB=1)],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", classes])],
        [
            numpy_helper.from_array(np.ones((classes, 2), np.float32), "fc.weight"),
            numpy_helper.from_array(np.zeros(classes, np.float32), "fc.bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if names:
        helper.set_model_props(model, {READING_KEY: json.dumps({"class_names": list(names)})})
    onnx.save(model, str(path))
    return path


def job_for(model: Path, said: list[str], *overrides: str) -> Job:
    recipe = recipe_for_model(str(model), overrides, needs_data=False)
    return Job(recipe=recipe, target=load_target("host"), notify=said.append, inform=said.append)


def words(*labels: int, names: tuple[str, ...]) -> Dataset:
    part = Part(features=np.zeros((len(labels), 2), np.float32), labels=np.array(labels))
    return Dataset(name="words.csv", train=part, reading=Reading(class_names=names))


def test_the_choice_is_in_the_recipe_so_that_a_resumed_run_has_the_same_model(tmp_path: Path) -> None:
    said: list[str] = []
    data = words(0, 1, 2, names=NAMES)
    job, same = with_classes(job_for(write_model(tmp_path / "m.onnx", 10), said), data)
    assert job.recipe.model.classes == 3
    assert same is data
    assert len(said) == 1


def test_labels_are_numbered_as_the_model_names_its_outputs(tmp_path: Path) -> None:
    said: list[str] = []
    model = write_model(tmp_path / "m.onnx", 3, names=("cat", "ant", "bee"))
    job, data = with_classes(job_for(model, said), words(0, 1, 2, names=NAMES))
    assert (job.recipe.model.classes, said) == (None, [])
    assert data.class_names == ("cat", "ant", "bee")
    assert data.train.labels.tolist() == [1, 2, 0]


def test_a_number_of_classes_in_the_recipe_stands_and_unused_outputs_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    asked = job_for(write_model(tmp_path / "m.onnx", 10), said, "model.classes=5")
    job, _ = with_classes(asked, words(0, 1, 2, names=NAMES))
    assert job.recipe.model.classes == 5
    assert said == [
        "the recipe gives the model 5 classes and the data has 3: the others are never right; `model.classes=3` fits"
    ]


def test_a_label_beyond_the_recipes_number_of_classes_is_found_before_anything_is_compiled(tmp_path: Path) -> None:
    asked = job_for(write_model(tmp_path / "m.onnx", 10), [], "model.classes=2")
    with pytest.raises(DataError, match="the training part has the label 2 at sample 1") as caught:
        with_classes(asked, words(0, 2, names=()))
    assert "model.classes=3" in caught.value.fix


def test_a_stray_label_makes_no_thousand_classes(tmp_path: Path) -> None:
    asked = job_for(write_model(tmp_path / "m.onnx", 10), [])
    with pytest.raises(DataError, match="the training part has the label 999 at sample 2") as caught:
        with_classes(asked, words(0, 1, 999, names=()))
    assert caught.value.fix == "add `model.classes=1000`, or correct the labels"


def test_a_loss_on_values_has_no_classes(tmp_path: Path) -> None:
    said: list[str] = []
    asked = job_for(write_model(tmp_path / "m.onnx", 1), said, "train.loss=mse")
    job, _ = with_classes(asked, words(0, 1, 2, names=()))
    assert (job, said) == (asked, [])


def test_a_single_class_is_refused_where_it_has_a_name_and_told_where_it_has_none(tmp_path: Path) -> None:
    said: list[str] = []
    asked = job_for(write_model(tmp_path / "m.onnx", 10), said)
    with pytest.raises(DataError, match=r"words\.csv has one class, `ant`"):
        with_classes(asked, words(0, 0, names=("ant",)))
    assert said == []
    with_classes(asked, words(0, 0, names=NAMES))
    assert said[0] == "all training samples are of one class: there is nothing to tell apart"


def test_a_plan_is_of_the_model_that_fit_trains(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u,v,label\n" + "".join(f"1,2,{n}\n3,4,{n}\n" for n in NAMES))
    said: list[str] = []
    asked = job_for(write_model(tmp_path / "m.onnx", 10), said, f"data.source={tmp_path / 'a.csv'}")
    assert resolve_without_data(asked).recipe.model.classes == 3


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_run_goes_on_with_the_head_that_it_began_with(build_cache: BuildCache, tmp_path: Path) -> None:
    lines = [f"{i % 3 - 1},{i % 2},{NAMES[i % 3]}\n" for i in range(48)]
    (tmp_path / "a.csv").write_text("u,v,label\n" + "".join(lines))
    said: list[str] = []
    model = write_model(tmp_path / "m.onnx", 10)
    asked = job_for(model, said, f"data.source={tmp_path / 'a.csv'}", "train.batch=8", "train.epochs=1")
    asked = dataclasses.replace(asked, cache=build_cache, threads=1)
    first = fit(asked, tmp_path / "run")
    assert [line for line in said if "is replaced by a new one, 2 → 3" in line]
    recipe = read_recipe(RunFolder(tmp_path / "run"), ("train.epochs=2",))
    assert recipe.model.classes == 3
    both = fit(dataclasses.replace(asked, recipe=recipe), tmp_path / "run", resume=True)
    assert both.losses[: len(first.losses)] == first.losses
    assert len(both.losses) == 2 * len(first.losses)
    trained = onnx.load(str(tmp_path / "run" / "model.onnx"))
    assert trained.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 3
    run = open_run(tmp_path / "run")
    assert run.reading.class_names == NAMES
    assert predict(run, np.zeros((2, 2), np.float32), threads=1).shape == (2, 3)


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_resumed_run_numbers_its_classes_as_it_began(build_cache: BuildCache, tmp_path: Path) -> None:
    lines = [f"{i % 3 - 1},{i % 2},{NAMES[i % 3]}\n" for i in range(48)]
    (tmp_path / "a.csv").write_text("u,v,label\n" + "".join(lines))
    model = write_model(tmp_path / "m.onnx", 3, names=("cat", "ant", "bee"))
    settings = (f"data.source={tmp_path / 'a.csv'}", "train.batch=8")
    half, whole = (
        dataclasses.replace(job_for(model, [], *settings, f"train.epochs={n}"), cache=build_cache, threads=1)
        for n in (1, 2)
    )
    expected = fit(whole, tmp_path / "whole")
    fit(half, tmp_path / "run")
    recipe = read_recipe(RunFolder(tmp_path / "run"), ("train.epochs=2",))
    found = fit(dataclasses.replace(half, recipe=recipe), tmp_path / "run", resume=True)
    assert (found.losses, found.parameters_sha256) == (expected.losses, expected.parameters_sha256)
    assert open_run(tmp_path / "run").reading.class_names == ("cat", "ant", "bee")


def test_a_plan_needs_no_data(tmp_path: Path) -> None:
    said: list[str] = []
    model = write_model(tmp_path / "m.onnx", 10)
    without = job_for(model, said)
    assert resolve_without_data(without) == without
    missing = job_for(model, said, f"data.source={tmp_path / 'gone.csv'}")
    assert resolve_without_data(missing) == missing
    assert "keeps its last layer: the data cannot be read here" in said[0]
