"""The coverage script: its table, its page, and a sample of its files where their packages are installed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.coverage import asked_of_torch, examine
from benchmarks.coverage_files import FILES, RealFile
from benchmarks.coverage_page import headline, to_markdown, trains
from benchmarks.importing.onnx_models import mlp
from benchmarks.references import optional_torch

_SAMPLE = (
    "magika/model.onnx",
    "openwakeword/alexa_v0.1.onnx",
    "openwakeword/hey_mycroft_v0.1.onnx",
    "silero-vad/silero_vad_16k_op15.onnx",
)


def _row(**values: Any) -> dict[str, Any]:
    return {
        "registry": "pip",
        "package": "some",
        "version": "1.0",
        "path": "some/net.onnx",
        "opset": 13,
        "nodes": 1200,
        "ops": 7,
        "parameters": 34567,
        "import": "yes",
        "gradients": "yes",
        "step": "yes",
        "forward": 2e-6,
        "losses": "2, 1, 0.5",
        **values,
    }


def test_the_table_has_enough_files_of_enough_packages_each_once() -> None:
    assert len(FILES) >= 20
    assert len({(f.registry, f.package) for f in FILES}) >= 12
    assert len({(f.package, f.path) for f in FILES}) == len(FILES)


def test_every_sampled_file_is_in_the_table() -> None:
    assert set(_SAMPLE) <= {f.name for f in FILES}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, True),
        ({"step": "no"}, False),
        ({"forward": 1e-2}, False),
        ({"forward": 1e-2, "quantised": True}, True),
        ({"forward": None}, True),
        ({"differences": "no"}, False),
        ({"differences": "open"}, False),
        ({"differences": "torch"}, True),
    ],
)
def test_a_file_trains_when_its_outputs_agree_and_its_loss_falls(change: dict[str, Any], verdict: bool) -> None:
    assert trains(_row(**change)) is verdict


def test_the_page_lists_every_file_and_explains_every_failure() -> None:
    rows = [_row(), _row(path="some/loop.onnx", step="–", reason="1 node of `loop`\n  Loop `x`: depends on data")]
    assert headline(rows) == "1 of 2 files from 1 packages train"
    page = to_markdown(rows)
    assert (
        "| some 1.0 (pip) | net.onnx | 13 | 7 kinds, 1,200 nodes | 34,567 | yes | 2e-06 | yes | yes | not run |" in page
    )
    assert "- `some/loop.onnx`: 1 node of `loop` Loop `x`: depends on data" in page


@pytest.mark.compile
def test_a_file_that_trains_is_found_to(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(mlp()), str(path))
    row = examine(RealFile(registry="", package="", version="", path="mlp.onnx"), path, differences=True)
    assert trains(row), row
    assert row["parameters"] == sum(int(np.prod(t.dims)) for t in mlp().graph.initializer)


@pytest.mark.compile
@pytest.mark.skipif(optional_torch.IS_MISSING, reason=f"needs `{optional_torch.INSTALL}`")
def test_where_differences_leave_it_open_pytorch_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(mlp()), str(path))
    file = RealFile(registry="", package="", version="", path="mlp.onnx")
    found = asked_of_torch(file, path, tmp_path)
    assert found["differences"] == "torch"
    assert 0 < found["torch"] < 1e-5


@pytest.mark.compile
def test_a_file_that_does_not_names_the_node(tmp_path: Path) -> None:
    proto = onnx.shape_inference.infer_shapes(mlp())
    proto.graph.node[1].op_type = "Unheard"
    path = tmp_path / "odd.onnx"
    onnx.save(proto, str(path))
    row = examine(RealFile(registry="", package="", version="", path="odd.onnx"), path, differences=False)
    assert not trains(row)
    assert row["import"] == "no"
    assert "Unheard `relu0`" in row["reason"]


def _installed(file: RealFile) -> Path:
    try:
        distribution = metadata.distribution(file.package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"`pip install {file.package}=={file.version}` to check it")
    path = Path(str(distribution.locate_file(file.path)))
    if not path.is_file():
        pytest.skip(f"{file.package} {distribution.version} does not ship {file.path}")
    return path


@pytest.mark.compile
@pytest.mark.parametrize("file", [f for f in FILES if f.name in _SAMPLE], ids=lambda f: f.name)
def test_a_real_file_still_trains_with_the_right_gradients(file: RealFile) -> None:
    row = examine(file, _installed(file), differences=True)
    assert trains(row), row
    assert row["differences"] == "yes"
