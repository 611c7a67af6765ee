"""Where PyTorch is installed, TVM would load it: twice the time and memory of everything else, for nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edgetrain.compiler.compile import inspect_model
from edgetrain.compiler.request import ModelSource
from edgetrain.graph.options import TrainOptions


@pytest.mark.compile
def test_the_compilers_process_does_not_load_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tmp_path / "loaded"
    (tmp_path / "torch.py").write_text(f"open({str(loaded)!r}, 'w').close()\nraise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *filter(None, sys.path))))
    inspect_model(ModelSource(source="zoo:digits-cnn"), TrainOptions(batch=4))
    assert not loaded.exists()
