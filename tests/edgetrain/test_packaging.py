"""What a wheel carries: built here, without a network, and looked into."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import edgetrain

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="building the wheel needs hatchling: pip install hatchling")
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def project() -> Mapping[str, Any]:
    table: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def below(folder: Path, prefix: str, *, suffixes: tuple[str, ...]) -> set[str]:
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.suffix in suffixes}
    assert found, f"{folder} holds no {suffixes}"
    return {prefix + name for name in found}


@pytest.mark.parametrize(
    ("folder", "prefix", "suffixes"),
    [
        ("targets", "edgetrain/_data/targets/", (".toml",)),
        ("recipes", "edgetrain/_data/recipes/", (".toml",)),
        ("edgetrain/_data", "edgetrain/_data/", (".npz", ".md")),
        ("edgetrain/runtime", "edgetrain/runtime/", (".c", ".h")),
        ("edgetrain", "edgetrain/", (".py",)),
        ("tuner/edgetrain_tuner", "edgetrain_tuner/", (".py",)),
        ("tuner/edgetrain_tuner/seed", "edgetrain_tuner/seed/", (".md", ".jsonl")),
    ],
)
def test_the_wheel_carries_every_file_of(
    names: frozenset[str], folder: str, prefix: str, suffixes: tuple[str, ...]
) -> None:
    assert below(ROOT / folder, prefix, suffixes=suffixes) <= names


def test_the_wheel_carries_the_files_that_the_first_command_needs(names: frozenset[str]) -> None:
    assert {
        "edgetrain/_data/digits.npz",
        "edgetrain/_data/recipes/digits.toml",
        "edgetrain/_data/targets/host.toml",
        "edgetrain/_data/targets/jetson.toml",
        "edgetrain/runtime/edgetrain.h",
        "edgetrain/runtime/threads.c",
        "edgetrain/cli/__init__.py",
        "edgetrain_tuner/rules/generic.py",
    } <= names


def test_type_checkers_are_told_that_both_packages_have_types(names: frozenset[str]) -> None:
    assert {"edgetrain/py.typed", "edgetrain_tuner/py.typed"} <= names


def test_the_wheel_claims_no_package_but_its_two(names: frozenset[str]) -> None:
    tops = {name.partition("/")[0] for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert tops == {"edgetrain", "edgetrain_tuner"}


def test_the_wheel_carries_licence_notice_and_the_licence_of_the_data(names: frozenset[str]) -> None:
    licences = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert {"LICENSE", "NOTICE"} <= licences
    assert "edgetrain/_data/digits.LICENSE.md" in names


def test_the_licence_is_the_text_of_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_command_edgetrain_starts_a_function_that_exists(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        lines = archive.read(name).decode().splitlines()
    assert lines == ["[console_scripts]", "edgetrain = edgetrain.cli:main"]
    from edgetrain.cli import main

    assert callable(main)


def test_a_plain_install_asks_for_exactly_the_declared_dependencies(
    metadata: Message, project: Mapping[str, Any]
) -> None:
    plain = {r.split()[0] for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r}
    assert {_distribution(r) for r in plain} == {_distribution(r) for r in project["dependencies"]}
    assert "torch" not in {_distribution(r) for r in plain}


def test_the_version_is_the_same_everywhere(metadata: Message, project: Mapping[str, Any]) -> None:
    assert metadata["Version"] == project["version"] == edgetrain.__version__


def _distribution(requirement: str) -> str:
    for position, character in enumerate(requirement):
        if character in " <>=!~;[":
            return requirement[:position]
    return requirement
