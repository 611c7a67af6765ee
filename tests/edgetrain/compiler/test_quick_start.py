"""What would make loading TVM slow, and is of no use: PyTorch where it is installed, and searches for garbage."""

from __future__ import annotations

import os
import subprocess
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


_LOADING = """
import gc
from edgetrain.compiler.quick_start import collect_rarely, do_without_torch

collect_rarely()
do_without_torch()
full = []
gc.callbacks.append(lambda phase, found: full.append(phase) if found["generation"] == 2 else None)
import edgetrain.compiler.lower, edgetrain.graph.build, edgetrain.model.importer
assert gc.isenabled()
print(len(gc.get_objects()) > 100_000, len(full))
"""


@pytest.mark.slow
def test_everything_is_loaded_without_looking_through_it_for_garbage() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", _LOADING], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0"]
