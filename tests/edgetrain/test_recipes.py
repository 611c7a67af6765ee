"""Claims about recipes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import DataError, UsageError
from edgetrain.recipes import Recipe, list_recipes, load_recipe, parse_scalar, recipe_header

EXPECTED = (
    "digits",
    "efficientnet-lite0",
    "fashion-mnist",
    "filetype",
    "minilm-spam",
    "voice-id",
    "watch-gestures",
)


def mistakes_of(*overrides: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load_recipe("digits", overrides)
    return re.findall(r"^  - (.*)$", caught.value.what, re.MULTILINE)


def test_the_recipes_are_the_documented_ones() -> None:
    assert list_recipes() == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_recipe_loads_and_says_what_to_expect(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.expect is not None


@pytest.mark.parametrize("name", EXPECTED)
def test_every_header_tells_needs_launch_override_and_expectation(name: str) -> None:
    header = recipe_header(name)
    for word in ("What", "Needs", "Install", f"Launch   edgetrain fit {name}", "Override", "Expect"):
        assert re.search(rf"^{re.escape(word)}", header, re.MULTILINE), word
    assert "#" not in header


@pytest.mark.parametrize("name", EXPECTED)
def test_the_overrides_a_header_suggests_are_accepted(name: str) -> None:
    commands = re.findall(rf"edgetrain fit {name} ([^(\n]*=[^(\n]*)", recipe_header(name))
    assert commands
    for command in commands:
        load_recipe(name, [word for word in shlex.split(command.partition("--")[0]) if "=" in word])


@pytest.mark.parametrize("name", EXPECTED)
def test_json_gives_the_recipe_back(name: str) -> None:
    recipe = load_recipe(name, ["model.inputs.image=[1, 8, 8]"])
    text = recipe.to_json()
    assert Recipe.from_json(text) == recipe
    assert Recipe.from_json(text).to_json() == text


def test_absolute_paths_leave_the_names_of_places_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ("model.source=models/a.onnx", "data.source=../b.npz", "train.loss=onnx", "train.loss_graph=c.onnx")
    found = load_recipe("digits", overrides).with_absolute_paths()
    assert (found.model.source, found.data.source, found.train.loss_graph) == (
        str(tmp_path / "models/a.onnx"),
        str(tmp_path / "../b.npz"),
        str(tmp_path / "c.onnx"),
    )
    digits = load_recipe("digits")
    assert digits.with_absolute_paths() == digits


def test_a_recipe_stored_before_parts_were_stratified_means_what_it_did() -> None:
    stored = json.loads(load_recipe("watch-gestures").to_json())
    assert stored["data"].pop("stratify") is True
    assert stored["data"].pop("scale_target") == "auto"
    found = Recipe.from_json(json.dumps(stored)).data
    assert (found.stratify, found.scale_target) == (False, "off")


def test_json_of_another_format_is_refused() -> None:
    with pytest.raises(DataError, match="format"):
        Recipe.from_json('{"format": "edgetrain.recipe/0"}')


@pytest.mark.parametrize(
    ("overrides", "batches"),
    [
        ((), 3 * 8),
        (("train.steps=5",), 5),
        (("train.steps=99",), 3 * 8),
        (("train.accumulate=3",), 3 * 6),  # two of the eight are left over in each epoch
        (("train.accumulate=3", "train.steps=4"), 12),
        (("train.batch=128",), 0),
    ],
)
def test_a_run_s_batches_are_counted_as_it_will_take_them(overrides: tuple[str, ...], batches: int) -> None:
    train = load_recipe("digits", ("train.epochs=3", "train.batch=12", *overrides)).train
    assert train.batches(100) == batches


def test_overrides_are_typed_and_the_last_one_wins() -> None:
    recipe = load_recipe(
        "digits",
        ["train.batch=4", "train.batch=8", "train.learning_rate=3e-4", "train.optimizer=sgd", "data.resize=[16, 16]"],
    )
    assert recipe.train.batch == 8
    assert recipe.train.learning_rate == 3e-4
    assert recipe.train.optimizer == "sgd"
    assert recipe.data.resize == (16, 16)


def test_class_weights_are_a_word_or_a_number_for_each_class() -> None:
    assert load_recipe("digits").train.class_weights == "none"
    assert load_recipe("digits", ["train.class_weights=balanced"]).train.class_weights == "balanced"
    recipe = load_recipe("digits", ["train.class_weights=[1, 2.5]"])
    assert recipe.train.class_weights == (1.0, 2.5)
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_none_takes_an_optional_value_back() -> None:
    assert load_recipe("fashion-mnist").data.limit == 10000
    assert load_recipe("fashion-mnist", ["data.limit=none"]).data.limit is None


def test_all_mistakes_come_in_one_error() -> None:
    found = mistakes_of(
        "train.batch=0",
        "train.optimiser=adam",
        "train.loss=hinge",
        "train.epochs=ten",
        "data.audio.mel=4",
        "data.text.length=2",
        "data.series=5",
        "metric=5",
        "nonsense",
        "a.b=1",
    )
    expected = (
        "`nonsense` is not an override",
        "`train.optimiser` is not a known key (did you mean `train.optimizer`?)",
        "`train.loss` is `hinge`, expected one of",
        "`train.batch` is `0`, expected 1 or more",
        "`train.epochs` is `ten`, expected a whole number",
        "`data.audio.mel` is not a known key (did you mean `data.audio.mels`?)",
        "`data.text.length` is `2`, expected 3 or more",
        "`data.series` is `5`, expected a table: write `[data.series]`",
        "`metric` is `5`, expected text",
        "`a` is not a known key",
    )
    assert len(found) == len(expected)
    for text in expected:
        assert any(mistake.startswith(text) for mistake in found), text


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("epochs=3", "`train.epochs`"),
        ("train.mode=head", "`update.mode`"),
        ("data.mels=4", "`data.audio.mels`"),
        ("source=photos", "`data.source` or `model.source`"),
    ],
)
def test_a_key_without_its_table_or_in_another_one_is_answered_with_the_whole_key(override: str, meant: str) -> None:
    (mistake,) = mistakes_of(override)
    assert mistake.endswith(f"is not a known key (did you mean {meant}?)")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["update.mode=names"], "`update.names` is empty"),
        (['update.names=["conv*"]'], "`update.mode` is `full`"),
        (["train.schedule=step"], "`train.step_every` is 0"),
        (["metric=mse"], "use `accuracy`"),
        (["train.loss=mse"], "use `mse` or `mae`"),
        (["data.mean=[0.1, 0.2]"], "`data.mean` has 2 values"),
        (["train.loss=mse", "metric=mse", "train.class_weights=balanced"], "cross-entropy alone has them"),
        (["train.loss=focal", "data.augment.mixup=0.2"], "cannot be mixed"),
        (["train.class_weights=even"], "one of `none`, `balanced`"),
        (["train.class_weights=[1, 0]"], "more than 0"),
        (["data.augment.flip=sideways"], "one of `none`, `horizontal`, `vertical`, `both`"),
        (["data.augment.rotation=5"], "did you mean"),
        (["model=5"], "expected a table"),
        (["model.source="], "`model.source` is empty"),
        (["data.resize=[99999999999, 9]"], "16384 or less"),
        (["data.channels=9223372036854775807"], "4096 or less"),
        (["train.loss=focal", "train.focal_gamma=1e-300"], "in 32 bits that is 0"),
        (["data.audio.sample_rate=99999999999"], "or less"),
        (["data.audio.seconds=1e9"], "3600 or less"),
        (["data.audio.mels=99999999"], "4096 or less"),
        (["data.audio.window_ms=1e9"], "60000 or less"),
        (["data.audio.hop_ms=3e38"], "60000 or less"),
        (["data.bytes.first=99999999999"], "or less"),
        (["data.bytes.last=99999999999"], "or less"),
        (["data.augment.noise=3e38"], "1000 or less"),
        (["update.mode=sparse", "update.budget=20kB", "update.calibrate=99999999999"], "65536 or less"),
        (["data.std=[1e-300]"], "1.2e-38 or more"),
        (["metric.x=5"], "`metric` is a value, not a table"),
    ],
)
def test_values_that_contradict_each_other_are_mistakes(overrides: list[str], expected: str) -> None:
    (mistake,) = mistakes_of(*overrides)
    assert expected in mistake


@pytest.mark.parametrize(
    ("override", "layer"), [('model.head={replace="logits", classes=7}', "logits"), ("model.head={classes=7}", "")]
)
def test_a_head_can_be_said_in_one_place(override: str, layer: str) -> None:
    model = load_recipe("digits", [override]).model
    assert (model.head, model.classes) == (layer, 7)


@pytest.mark.parametrize(
    ("overrides", "mistakes"),
    [
        (['model.head={replace="logits"}'], ["`model.head` is a table without `classes`: how many the new head has"]),
        (
            ["model.classes=7", "model.head={classes=7}"],
            ["`model.classes` and `model.head.classes` are the same: leave one of them out"],
        ),
        (["model.head={clases=7, classes=7}"], ["`model.head.clases` is unknown: a head has `replace` and `classes`"]),
    ],
)
def test_a_head_that_is_said_wrong_is_a_mistake(overrides: list[str], mistakes: list[str]) -> None:
    assert mistakes_of(*overrides) == mistakes


def test_a_path_in_a_recipe_counts_from_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[model]\nsource = "net.onnx"\n[data]\nsource = "bundled:digits"\n[data.text]\nvocabulary = "vocab.txt"\n'
    )
    recipe = load_recipe(path)
    assert recipe.model.source == str(tmp_path / "net.onnx")
    assert recipe.data.source == "bundled:digits"
    assert recipe.data.text.vocabulary == str(tmp_path / "vocab.txt")
    assert recipe.name == "mine"
    assert load_recipe(path, ["model.source=other.onnx"]).model.source == "other.onnx"


def test_an_unknown_recipe_is_answered_with_the_close_ones() -> None:
    with pytest.raises(UsageError, match="did you mean `digits`"):
        load_recipe("digit")
    with pytest.raises(UsageError, match="no recipe file"):
        load_recipe("./digit.toml")


def test_a_file_that_is_not_toml_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[model")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_recipe(tmp_path / "x.toml")


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_scalar(text: str) -> None:
    parse_scalar(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("1e-3", 1e-3), ("true", True), ('"a b"', "a b"), ("adam", "adam"), ("zoo:x", "zoo:x")],
)
def test_a_bare_word_is_text_and_a_toml_scalar_its_value(text: str, value: object) -> None:
    assert parse_scalar(text) == value


def test_a_key_of_a_table_within_a_table_can_be_overridden() -> None:
    recipe = load_recipe("voice-id", ["data.audio.mels=20"])
    assert (recipe.data.audio.mels, recipe.data.audio.sample_rate) == (20, 8000)
    assert Recipe.from_json(recipe.to_json()) == recipe
