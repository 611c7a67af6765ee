from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import FLOAT, mlp, model_of
from edgetrain.errors import ModelError, UnsupportedError
from edgetrain.model.load import OPSETS, check, external_files, load_onnx, opset_of


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_valid_model_is_read_back_whole(tmp_path: Path) -> None:
    model = onnx.shape_inference.infer_shapes(mlp())
    path = _written(tmp_path / "model.onnx", model.SerializeToString())
    assert load_onnx(path) == model


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model file at .*absent\.onnx") as caught:
        load_onnx(tmp_path / "absent.onnx")
    assert caught.value.why == "nothing is there"
    assert caught.value.fix


def test_a_directory_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_onnx(tmp_path)
    assert caught.value.why == "the path is a directory"


@pytest.mark.parametrize(
    "content", [b"\xff" * 64, b"PK\x03\x04 a zip file", b"not a model\n"], ids=["bytes", "zip", "text"]
)
def test_bytes_that_are_no_model_are_rejected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ModelError, match="is not an ONNX model") as caught:
        load_onnx(_written(tmp_path / "garbage.onnx", content))
    assert caught.value.fix


def test_an_empty_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not an ONNX model") as caught:
        load_onnx(_written(tmp_path / "empty.onnx", b""))
    assert "no nodes" in caught.value.why


@pytest.mark.parametrize("kept_share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_model_is_rejected(tmp_path: Path, kept_share: float) -> None:
    content = mlp().SerializeToString()
    path = _written(tmp_path / "cut.onnx", content[: int(len(content) * kept_share)])
    with pytest.raises(ModelError) as caught:
        load_onnx(path)
    assert "copy is complete" in caught.value.fix


def test_a_graph_without_nodes_is_rejected(tmp_path: Path) -> None:
    model = model_of([], inputs={"x": [1, 2]}, outputs=["x"])
    with pytest.raises(ModelError) as caught:
        load_onnx(_written(tmp_path / "empty_graph.onnx", model.SerializeToString()))
    assert "holds no nodes" in caught.value.why


@pytest.mark.parametrize("opset", [OPSETS.start - 1, OPSETS.stop, 1])
def test_an_opset_outside_the_range_is_unsupported_and_the_range_is_named(opset: int) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = model_of([node], inputs={"x": [1, 2]}, outputs=["y"], opset=opset)
    with pytest.raises(
        UnsupportedError, match=f"opset {opset}; edgetrain reads opsets {OPSETS.start} to {OPSETS.stop - 1}"
    ):
        check(model, "model")


@pytest.mark.parametrize("opset", [OPSETS.start, OPSETS.stop - 1])
def test_both_ends_of_the_range_are_accepted(opset: int) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = onnx.shape_inference.infer_shapes(model_of([node], inputs={"x": [1, 2]}, outputs=["y"], opset=opset))
    check(model, "model")
    assert opset_of(model) == opset


def test_a_node_that_reads_nothing_known_is_invalid() -> None:
    node = helper.make_node("Relu", ["nowhere"], ["y"])
    model = onnx.shape_inference.infer_shapes(model_of([node], inputs={"x": [1, 2]}, outputs=["y"]))
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        check(model, "model")


def test_custom_ops_are_left_to_the_importer_which_names_all_of_them() -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    model = model_of([node], inputs={"x": [1, 2]}, outputs=["y"], domains=["com.example"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [1, 2]))
    check(model, "model")


def _with_side_files(folder: Path, *, one: bool = True) -> Path:
    path = folder / "model.onnx"
    model = onnx.shape_inference.infer_shapes(mlp())
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=one,
        location="weights.bin" if one else None,
        size_threshold=0,
    )
    return path


@pytest.mark.parametrize("one", [True, False], ids=["one_file", "a_file_each"])
def test_weights_in_side_files_are_read_with_the_model(tmp_path: Path, one: bool) -> None:
    path = _with_side_files(tmp_path, one=one)
    found = {i.name: onnx.numpy_helper.to_array(i).tolist() for i in load_onnx(path).graph.initializer}
    assert found == {i.name: onnx.numpy_helper.to_array(i).tolist() for i in mlp().graph.initializer}


def test_side_files_are_listed_by_what_the_model_says_not_by_their_names(tmp_path: Path) -> None:
    assert external_files(_with_side_files(tmp_path)) == (tmp_path / "weights.bin",)
    assert len(external_files(_with_side_files(tmp_path, one=False))) == len(mlp().graph.initializer)


def test_a_model_that_does_not_parse_has_no_side_files(tmp_path: Path) -> None:
    assert external_files(_written(tmp_path / "garbage.onnx", b"\xff" * 64)) == ()


def test_a_missing_side_file_is_named(tmp_path: Path) -> None:
    path = _with_side_files(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match="cannot read the weights of the model") as caught:
        load_onnx(path)
    assert "`weights.bin`" in caught.value.fix


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_truncated_side_file_is_named(tmp_path: Path, kept: int) -> None:
    path = _with_side_files(tmp_path)
    side = tmp_path / "weights.bin"
    side.write_bytes(side.read_bytes()[:kept])
    with pytest.raises(ModelError, match="cannot read the weights of the model") as caught:
        load_onnx(path)
    assert "`weights.bin`" in caught.value.fix


def test_a_side_file_outside_of_the_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    path = _with_side_files(tmp_path / "inside")
    (tmp_path / "inside" / "weights.bin").rename(tmp_path / "weights.bin")
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = "../weights.bin"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="cannot read the weights of the model"):
        load_onnx(path)
