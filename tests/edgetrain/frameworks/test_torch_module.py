"""`edgetrain.fit(module, data)`: what goes in is a PyTorch module, and what comes out can be put back into it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgetrain
from benchmarks.references.optional_torch import INSTALL
from edgetrain.errors import UsageError
from edgetrain.frameworks.torch_inputs import Call, fitting_call, is_torch_module, name_of_module
from edgetrain.frameworks.torch_module import export_module
from edgetrain.frameworks.torch_weights import load_into

torch = pytest.importorskip("torch", reason=INSTALL)
nn: Any = torch.nn

Build = Callable[[str], Any]


@pytest.fixture
def build() -> Build:
    def one(name: str) -> Any:
        torch.manual_seed(0)
        return getattr(import_module("benchmarks.models.torch_modules"), name)()

    return one


@pytest.fixture
def workplace(tmp_path: Path, cache_home: Path, compiler_here: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    return tmp_path


def pictures(count: int = 96) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, count)
    data = rng.standard_normal((count, 1, 8, 8)).astype(np.float32)
    for row, label in enumerate(labels):
        data[row, :, label * 3 : label * 3 + 2] += 2.5
    return data, labels


def state(module: Any) -> dict[str, Any]:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


@pytest.mark.compile
@pytest.mark.parametrize("is_training", [True, False])
def test_a_trained_module_says_what_the_run_predicts(build: Build, is_training: bool, workplace: Path) -> None:
    module, (x, y) = build("TinyResNet").train(is_training), pictures()
    before = state(module)
    run = edgetrain.fit(module, (x, y), train_epochs=2, train_learning_rate=0.05, train_batch=8)
    assert run.folder == Path("runs/tiny-res-net")
    assert module.training is is_training
    assert same(state(module), before), "fit must not touch the module"

    run.load_into(module)
    assert module.training is is_training
    moved = {name for name, value in state(module).items() if not np.array_equal(value, before[name])}
    assert {name for name in before if "num_batches_tracked" not in name} == moved
    module.eval()
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), run.predict(x), atol=1e-4)


class Named(nn.Module):  # type: ignore[misc, unused-ignore]
    """Two inputs, a fixed buffer, and a first layer that its owner froze."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8).requires_grad_(False)
        self.second = nn.Linear(8, 3)
        self.register_buffer("offset", torch.linspace(-1, 1, 8))

    def forward(self, values: Any, mask: Any, scale: float = 1.0) -> Any:
        return self.second(torch.tanh(self.first(values) * scale + self.offset) * mask)


@pytest.mark.compile
def test_inputs_go_by_name_and_only_what_needs_a_gradient_is_trained(workplace: Path) -> None:
    torch.manual_seed(0)
    module, rng = Named(), np.random.default_rng(0)
    before = state(module)
    x = {
        "mask": (rng.random((64, 8)) > 0.3).astype(np.float32),
        "values": rng.standard_normal((64, 4)).astype(np.float32),
    }
    run = edgetrain.fit(module, {"x_train": x, "y_train": rng.integers(0, 3, 64)}, train_epochs=1, train_batch=8)
    run.load_into(module)
    after = state(module)
    assert {n for n in before if not np.array_equal(before[n], after[n])} == {"second.weight", "second.bias"}
    with torch.no_grad():
        found = module(*(torch.from_numpy(x[name]) for name in ("values", "mask"))).numpy()
    np.testing.assert_allclose(found, run.predict(edgetrain_samples(x)), atol=1e-4)


def edgetrain_samples(x: Mapping[str, Any]) -> Any:
    from edgetrain.dataset.samples import NamedSamples

    return NamedSamples(arrays=x)


@pytest.mark.compile
def test_a_module_is_planned_for_with_a_sample(build: Build, workplace: Path) -> None:
    x, _ = pictures(1)
    small, large = (edgetrain.plan(build("TinyResNet"), sample=x[0], train_batch=n).peak_bytes for n in (2, 16))
    assert small < large
    assert not list(workplace.iterdir())
    with pytest.raises(UsageError, match="needs a sample") as raised:
        edgetrain.plan(build("TinyResNet"))
    assert "sample=x[0]" in raised.value.fix


def test_batch_norm_and_every_name_are_in_the_file(build: Build, tmp_path: Path) -> None:
    module = build("TinyResNet")
    exported = export_module(module, list(pictures(4)[0]), tmp_path / "m.onnx")
    proto = onnx.load(str(exported.path))
    assert sum(node.op_type == "BatchNormalization" for node in proto.graph.node) == 4
    assert exported.trained is None, "all of it is trained: the recipe's own update mode stays"
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize(
    ("samples", "module", "shape", "dtype"),
    [
        (np.zeros((4, 8, 8), np.uint8), nn.Conv2d(1, 2, 3), [4, 1, 8, 8], "float32"),
        (np.zeros((4, 8, 8), np.uint8), nn.Linear(64, 2), [4, 64], "float32"),
        (np.zeros((4, 5), np.int64), nn.Embedding(9, 2), [4, 5], "int64"),
        (np.zeros((4, 5), np.int32), nn.Linear(5, 2), [4, 5], "float32"),
        (np.zeros((4, 6, 5), np.float64), nn.LSTM(5, 2, batch_first=True), [4, 6, 5], "float32"),
        (np.zeros((1, 5), np.float32), nn.Linear(5, 2), [2, 5], "float32"),
    ],
)
def test_a_sample_takes_the_form_that_the_module_accepts(samples: Any, module: Any, shape: Any, dtype: str) -> None:
    call = fitting_call(module, list(samples))
    assert isinstance(call, Call)
    assert list(call.positional[0].shape) == shape
    assert str(call.positional[0].dtype) == f"torch.{dtype}"


def test_data_that_does_not_fit_is_told_with_what_the_module_says() -> None:
    with pytest.raises(UsageError, match="does not accept the data") as raised:
        fitting_call(nn.Linear(7, 2), list(np.zeros((4, 5), np.float32)))
    assert "[4, 5] float32: mat1 and mat2" in raised.value.why


@pytest.mark.parametrize("sample", [np.array("good news"), {"x": np.array("good news")}])
def test_texts_are_told_from_numbers(sample: Any) -> None:
    with pytest.raises(UsageError, match="hold texts, not numbers") as raised:
        fitting_call(nn.Linear(7, 2), [sample] * 3)
    assert "token ids" in raised.value.fix


def test_a_module_with_nothing_to_train_is_refused(tmp_path: Path) -> None:
    module = nn.Linear(5, 2).requires_grad_(False)
    with pytest.raises(UsageError, match="no parameter to train") as raised:
        export_module(module, list(np.zeros((4, 5), np.float32)), tmp_path / "m.onnx")
    assert "requires_grad_(True)" in raised.value.fix


def test_weights_of_another_shape_or_name_change_nothing(tmp_path: Path) -> None:
    export_module(nn.Sequential(nn.Linear(5, 2)), list(np.zeros((4, 5), np.float32)), tmp_path / "m.onnx")
    wider, other = nn.Sequential(nn.Linear(5, 3)), nn.ModuleDict({"head": nn.Linear(5, 2)})
    for module, message in ((wider, "has the shape"), (other, r"no `head\.weight`")):
        before = state(module)
        with pytest.raises(UsageError, match=message):
            load_into((tmp_path / "m.onnx").read_bytes(), module)
        assert same(state(module), before)


def test_a_module_is_known_without_importing_torch() -> None:
    assert is_torch_module(nn.Linear(2, 2))
    assert not is_torch_module(object())
    assert name_of_module(nn.Sequential()) == "sequential"
    code = "import sys, edgetrain.api; sys.exit('torch' in sys.modules or 'onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_finished_runs_file_is_not_replaced(build: Build, workplace: Path) -> None:
    (workplace / "report.json").write_text("{}")
    with pytest.raises(UsageError, match="has finished"):
        edgetrain.fit(build("TinyResNet"), pictures(), out=workplace)
    assert [path.name for path in workplace.iterdir()] == ["report.json"]


@pytest.mark.compile
def test_a_modules_run_resumes(build: Build, workplace: Path) -> None:
    first = edgetrain.fit(build("TinyResNet"), pictures(), out="run", train_epochs=1, train_batch=8)
    again = edgetrain.fit(build("TinyResNet"), pictures(), out="run", train_epochs=2, train_batch=8, resume=True)
    assert again.losses[: len(first.losses)] == first.losses
    assert len(again.losses) == 2 * len(first.losses)
