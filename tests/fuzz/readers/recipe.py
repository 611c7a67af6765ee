"""A recipe file with what it extends, and overrides.

Three parts with `%%%` between them: the recipe, the one that it may extend as `base.toml`, and an override a line.
"""

from __future__ import annotations

from edgetrain.recipes import Recipe, load_recipe, recipe_for_model, recipe_header
from tests.fuzz.harness import documented, file_of

_BETWEEN = b"\n%%%\n"
WORDS = (
    *(
        b"[model]",
        b"[data]",
        b"[train]",
        b"[update]",
        b"[data.audio]",
        b"[data.augment]",
        b"extends = ",
        b'"base.toml"',
    ),
    *(
        b'"recipe.toml"',
        b"source = ",
        b"head = {replace = ",
        b"classes = ",
        b"inputs = {",
        b"inf",
        b"nan",
        b"0x",
        b"none",
    ),
    *(
        b"train.loss=",
        b"data.augment.flip=",
        b"model.head=",
        b"class_weights = ",
        b'"""',
        b"\\uD800",
        b"1" * 400,
        b"1979-05-27",
    ),
    *(b'"digits"', b"[[", b"]]", b"= [", _BETWEEN),
)


def one_input(data: bytes) -> None:
    recipe, base, overrides = (*data.split(_BETWEEN, 2), b"", b"")[:3]
    words = tuple(overrides.decode("utf-8", "replace").splitlines())
    with file_of(recipe, "recipe.toml") as path:
        (path.parent / "base.toml").write_bytes(base)
        with documented():
            _require_same(load_recipe(path, words))
            recipe_header(path)
        with documented():
            _require_same(recipe_for_model("zoo:digits-cnn", words))


def _require_same(recipe: Recipe) -> None:
    """What is accepted is stored, and must be read back as it is."""
    assert Recipe.from_json(recipe.to_json()) == recipe
    recipe.with_absolute_paths()
