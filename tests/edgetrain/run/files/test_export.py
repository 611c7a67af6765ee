from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import model_of
from edgetrain.run.sensors.process_memory import reset_peak

_TENSORS, _TENSOR_BYTES = 16, 4 << 20

# In a process of its own, which has imported all that writing needs. Pages of zeros that nobody wrote take no memory.
_WRITE = """
import json, sys
from pathlib import Path
import numpy as np, onnx
from edgetrain.model import outline, write_back
from edgetrain.run.files.export import write_trained_onnx
from edgetrain.run.sensors.process_memory import grown_bytes, reset_peak, resident
small = Path(sys.argv[2])
write_trained_onnx(small, {}, small.with_suffix(".out"))
weights = {f"w{i}": np.zeros((1024, 1024), np.float32) for i in range(int(sys.argv[3]))}
before = resident()
reset_peak()
write_trained_onnx(Path(sys.argv[1]), weights, Path(sys.argv[1]).with_suffix(".out"))
print(json.dumps(grown_bytes(before)))
"""


def chain(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", [f"x{i}" if i else "x", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    weights = {f"w{i}": np.full((1024, 1024), i + 1, np.float32) for i in range(count)}
    return model_of(nodes, inputs={"x": ["n", 1024]}, outputs=[f"x{count}"], stored=weights)


@pytest.mark.slow
def test_a_model_is_written_in_a_fraction_of_its_size(tmp_path: Path) -> None:
    if not reset_peak():
        pytest.skip("this kernel cannot reset the peak of a process's memory")
    onnx.save(chain(_TENSORS), str(tmp_path / "large.onnx"))
    onnx.save(chain(1), str(tmp_path / "small.onnx"))
    words = [str(tmp_path / "large.onnx"), str(tmp_path / "small.onnx"), str(_TENSORS)]
    done = subprocess.run([sys.executable, "-c", _WRITE, *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) < 2 * _TENSOR_BYTES
    written = onnx.load(str(tmp_path / "large.out"))
    assert [t.name for t in written.graph.initializer] == [f"w{i}" for i in range(_TENSORS)]
    assert not any(any(t.raw_data) for t in written.graph.initializer)
