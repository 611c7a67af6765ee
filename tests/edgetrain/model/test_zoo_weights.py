"""The table of packages names exactly those that building a model asks for."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from edgetrain.errors import ModelError
from edgetrain.model.zoo import build_zoo_model, zoo_names
from edgetrain.model.zoo_weights import WeightsPackage, packages_of_weights


@pytest.mark.parametrize("name", zoo_names())
def test_a_model_names_the_packages_that_it_is_built_from(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def find_spec(module: str, package: str | None = None) -> ModuleSpec | None:
        asked.append(module)
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    if packages_of_weights(name):
        with pytest.raises(ModelError):
            build_zoo_model(name)
    else:
        build_zoo_model(name)
    assert asked == [package.module for package in packages_of_weights(name)]


def test_a_package_that_is_not_there_has_no_version() -> None:
    package = WeightsPackage(name="no-such-package", module="no_such_package", install="")
    assert (package.is_installed, package.version) == (False, "")
