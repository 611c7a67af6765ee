"""Every loss: its value by a plain formula and by torch, its gradient by finite differences, all in float64."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper

from edgetrain._tvm import Target, relax, runtime, tvm
from edgetrain.errors import ModelError, UsageError
from edgetrain.graph.loss import Loss
from edgetrain.graph.losses import LOSSES, loss_of
from edgetrain.graph.options import LossOptions, TrainOptions
from edgetrain.run.loop.metrics import LOSSES as HOST_LOSSES
from edgetrain.run.loop.metrics import loss_metric

Array = npt.NDArray[Any]
STEP = 1e-5


def onnx_graph(nodes: list[Any], *, labels: int = TensorProto.DOUBLE, outputs: list[Any] | None = None) -> str:
    """A loss from `output` and `labels`, both (batch, 3) doubles, to `loss`, as the options hold it."""
    graph = helper.make_graph(
        nodes,
        "loss",
        [
            helper.make_tensor_value_info("output", TensorProto.DOUBLE, ["batch", "width"]),
            helper.make_tensor_value_info("labels", labels, ["batch", 3]),
        ],
        [helper.make_tensor_value_info("loss", TensorProto.DOUBLE, outputs or [])],
        [helper.make_tensor("weights", TensorProto.DOUBLE, [3], [0.5, 1.0, 2.0])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return base64.b64encode(proto.SerializeToString()).decode()


WEIGHTED_LOG_COSH = onnx_graph(
    [
        helper.make_node("Sub", ["output", "labels"], ["apart"]),
        helper.make_node("Cosh", ["apart"], ["cosh"]),
        helper.make_node("Log", ["cosh"], ["log"]),
        helper.make_node("Mul", ["log", "weights"], ["weighted"]),
        helper.make_node("ReduceMean", ["weighted"], ["loss"], keepdims=0),
    ]
)


def _label_rows(rng: np.random.Generator, shape: tuple[int, ...], *, time: int, classes: int) -> Array:
    """Rows that can be spelt: random ones of any length, neighbours equal or not; the first is as long as can be."""
    rows, width = shape
    labels = np.full(shape, -1)
    for row in range(rows):
        while True:
            length = min(width, time) if row == 0 else int(rng.integers(0, width + 1))
            drawn = rng.integers(1, classes, length)
            if length + int((drawn[1:] == drawn[:-1]).sum()) <= time:
                break
        labels[row, :length] = drawn
    return labels


@dataclass(frozen=True, kw_only=True)
class LossCase:
    loss: str
    shape: tuple[int, ...]
    scale: float = 1.0
    options: LossOptions = field(default_factory=LossOptions)

    @property
    def name(self) -> str:
        o = self.options
        settings = f"{o.label_smoothing:g}_{o.focal_gamma:g}_{o.temperature:g}".replace(".", "p")
        kind = "_weighted" * bool(o.class_weights) + "_rows" * o.has_label_rows
        return f"{self.loss}_{'x'.join(map(str, self.shape))}_{self.scale:g}_{settings}{kind}".replace("-", "_")

    @property
    def made(self) -> Loss:
        return loss_of(TrainOptions(batch=self.shape[0], loss=self.loss, loss_options=self.options), self.shape)

    def values(self, seed: int = 0) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        output = rng.standard_normal(self.shape) * self.scale
        made = self.made
        if self.loss == "ctc":
            return output, _label_rows(rng, made.label_shape, time=self.shape[1], classes=self.shape[2])
        if self.loss == "nt-xent":
            return output, np.arange(self.shape[0]) // 2 % 3  # pairs, more than pairs, and with 7 rows one alone
        if made.label_dtype == "int64":
            return output, rng.integers(0, self.shape[1], made.label_shape)
        labels = rng.standard_normal(made.label_shape)
        if self.loss == "bce":
            labels = rng.uniform(0, 1, made.label_shape)
        if self.loss == "cross-entropy":  # each label is one class, or shared by two
            first, second = rng.integers(0, self.shape[1], (2, self.shape[0], *self.shape[2:]))
            share = rng.choice([0.0, 0.3, 1.0], (*first.shape, 1))
            mixed = share * np.eye(self.shape[1])[first] + (1 - share) * np.eye(self.shape[1])[second]
            return output, np.ascontiguousarray(np.moveaxis(mixed, -1, 1))
        if self.loss == "kl":
            labels = np.where(rng.uniform(size=labels.shape) < 0.3, 0.0, np.exp(labels))  # a class with share 0 too
            labels = (labels + 1e-30) / (labels + 1e-30).sum(axis=1, keepdims=True)
        return output, labels


CASES = (
    LossCase(loss="cross-entropy", shape=(4, 5)),
    LossCase(loss="cross-entropy", shape=(1, 2)),
    LossCase(loss="cross-entropy", shape=(2, 3, 4)),
    LossCase(loss="cross-entropy", shape=(2, 3, 2, 2)),
    LossCase(loss="cross-entropy", shape=(3, 4), scale=300.0),
    LossCase(loss="cross-entropy", shape=(4, 5), options=LossOptions(label_smoothing=0.1)),
    LossCase(loss="cross-entropy", shape=(2, 3, 2), options=LossOptions(label_smoothing=0.3)),
    LossCase(loss="cross-entropy", shape=(6, 3), options=LossOptions(class_weights=(0.5, 1.0, 4.0))),
    LossCase(
        loss="cross-entropy", shape=(3, 3, 2), options=LossOptions(class_weights=(0.5, 1.0, 4.0), label_smoothing=0.2)
    ),
    LossCase(loss="cross-entropy", shape=(6, 3), options=LossOptions(has_label_rows=True)),
    LossCase(loss="cross-entropy", shape=(6, 3), options=LossOptions(has_label_rows=True, label_smoothing=0.1)),
    LossCase(loss="cross-entropy", shape=(2, 3, 2, 2), options=LossOptions(has_label_rows=True)),
    LossCase(
        loss="cross-entropy",
        shape=(6, 3),
        options=LossOptions(has_label_rows=True, class_weights=(0.5, 1.0, 4.0), label_smoothing=0.1),
    ),
    LossCase(loss="bce", shape=(3, 2)),
    LossCase(loss="bce", shape=(4,)),
    LossCase(loss="bce", shape=(3, 2), scale=300.0),
    LossCase(loss="mse", shape=(3, 2, 2)),
    LossCase(loss="mse", shape=(2,)),
    LossCase(loss="l1", shape=(3, 4)),
    LossCase(loss="focal", shape=(4, 5)),
    LossCase(loss="focal", shape=(2, 3, 2), options=LossOptions(focal_gamma=0.5)),
    LossCase(loss="focal", shape=(3, 4), options=LossOptions(focal_gamma=0.0)),
    LossCase(loss="focal", shape=(3, 4), scale=300.0),
    LossCase(loss="kl", shape=(4, 5)),
    LossCase(loss="kl", shape=(2, 3, 2), options=LossOptions(temperature=4.0)),
    LossCase(loss="distillation", shape=(4, 5), options=LossOptions(temperature=3.0)),
    LossCase(loss="distillation", shape=(2, 3, 2)),
    LossCase(loss="cosine", shape=(4, 5)),
    LossCase(loss="cosine", shape=(2, 3, 2)),
    LossCase(loss="nt-xent", shape=(4, 3), options=LossOptions(temperature=0.5)),
    LossCase(loss="nt-xent", shape=(7, 5), options=LossOptions(temperature=0.2)),
    LossCase(loss="ctc", shape=(3, 5, 3), options=LossOptions(label_length=3)),
    LossCase(loss="ctc", shape=(4, 4, 4)),
    LossCase(loss="ctc", shape=(2, 1, 3)),
    LossCase(loss="ctc", shape=(3, 5, 3), scale=300.0, options=LossOptions(label_length=2)),
    LossCase(loss="onnx", shape=(4, 3), options=LossOptions(graph=WEIGHTED_LOG_COSH)),
)


def _rows(values: Array) -> Array:
    """One row of class scores for each label."""
    return np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])


def _log_shares(logits: Array) -> Array:
    shifted = logits - logits.max(1, keepdims=True)
    shares: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return shares


def _cross_entropy(output: Array, labels: Array, options: LossOptions) -> float:
    log_shares = _log_shares(_rows(output))
    smoothing = options.label_smoothing
    shares = _rows(labels) if options.has_label_rows else np.eye(output.shape[1])[labels.reshape(-1)]
    weights = np.array(options.class_weights or [1.0] * output.shape[1])
    target = weights * (shares * (1 - smoothing) + smoothing / output.shape[1])
    return float(-(target * log_shares).sum() / (weights * shares).sum())


def _bce(output: Array, labels: Array, _options: LossOptions) -> float:
    """log(1 + eˣ) − x·y, which is −y·log σ(x) − (1 − y)·log(1 − σ(x))."""
    return float((np.logaddexp(0, output) - output * labels).mean())


def _focal(output: Array, labels: Array, options: LossOptions) -> float:
    logits = _rows(output)
    log_share = _log_shares(logits)[np.arange(len(logits)), labels.reshape(-1)]
    return float((-((1 - np.exp(log_share)) ** options.focal_gamma) * log_share).mean())


def _kl(output: Array, labels: Array, options: LossOptions) -> float:
    q, t = _rows(labels), options.temperature
    apart = np.log(q) - _log_shares(_rows(output) / t)
    return float(t**2 * (q * apart).sum(1).mean())


def _distillation(output: Array, labels: Array, options: LossOptions) -> float:
    teacher = np.exp(_log_shares(_rows(labels) / options.temperature))
    student_log = _log_shares(_rows(output) / options.temperature)
    return float(options.temperature**2 * (teacher * (np.log(teacher) - student_log)).sum(1).mean())


def _cosine(output: Array, labels: Array, _options: LossOptions) -> float:
    x, y = _rows(output), _rows(labels)
    cosine = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    return float((1 - cosine).mean())


def _nt_xent(output: Array, labels: Array, options: LossOptions) -> float:
    unit = output / np.linalg.norm(output, axis=1, keepdims=True)
    losses = []
    for i, label in enumerate(labels):
        likeness = np.exp(unit @ unit[i] / options.temperature)
        others = [j for j in range(len(labels)) if j != i]
        own = [np.log(likeness[j] / likeness[others].sum()) for j in others if labels[j] == label]
        losses.append(-float(np.mean(own)) if own else 0.0)
    return float(np.mean(losses))


def _ctc(output: Array, labels: Array, _options: LossOptions) -> float:
    """Every path there is: those that spell the row, repeats merged and blanks dropped, are summed up."""
    losses = []
    for logits, row in zip(output, labels, strict=True):
        log_p, wanted = _log_shares(logits), tuple(row[row >= 0].tolist())
        likely = [
            sum(log_p[t, c] for t, c in enumerate(path))
            for path in itertools.product(range(logits.shape[1]), repeat=len(logits))
            if tuple(c for c, _ in itertools.groupby(path) if c != 0) == wanted
        ]
        losses.append(-np.logaddexp.reduce(likely) / max(len(wanted), 1))
    return float(np.mean(losses))


REFERENCES: Mapping[str, Callable[[Array, Array, LossOptions], float]] = {
    "cross-entropy": _cross_entropy,
    "bce": _bce,
    "mse": lambda output, labels, _: float(((output - labels) ** 2).mean()),
    "l1": lambda output, labels, _: float(np.abs(output - labels).mean()),
    "focal": _focal,
    "kl": _kl,
    "distillation": _distillation,
    "cosine": _cosine,
    "nt-xent": _nt_xent,
    "ctc": _ctc,
    "onnx": lambda output, labels, _: float((np.log(np.cosh(output - labels)) * [0.5, 1.0, 2.0]).mean()),
}


def _in_torch(case: LossCase, output: Array, labels: Array) -> tuple[float, Array] | None:
    """Torch's own loss and gradient; None where torch has none."""
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0")
    functional, o = torch.nn.functional, case.options
    x, y = torch.from_numpy(output).requires_grad_(), torch.from_numpy(labels)
    t = o.temperature
    weights = torch.tensor(o.class_weights, dtype=x.dtype) if o.class_weights else None
    losses: dict[str, Callable[[], Any]] = {
        "cross-entropy": lambda: functional.cross_entropy(x, y, weight=weights, label_smoothing=o.label_smoothing),
        "bce": lambda: functional.binary_cross_entropy_with_logits(x, y),
        "mse": lambda: functional.mse_loss(x, y),
        "l1": lambda: functional.l1_loss(x, y),
        "kl": lambda: functional.kl_div(functional.log_softmax(x / t, 1), y, reduction="none").sum(1).mean() * t**2,
        "distillation": lambda: (
            functional.kl_div(
                functional.log_softmax(x / t, 1), functional.log_softmax(y / t, 1), reduction="none", log_target=True
            )
            .sum(1)
            .mean()
            * t**2
        ),
        "cosine": lambda: functional.cosine_embedding_loss(
            x.movedim(1, -1).reshape(-1, x.shape[1]),
            y.movedim(1, -1).reshape(-1, y.shape[1]),
            torch.ones(x.numel() // x.shape[1]),
        ),
    }
    if case.loss == "ctc":
        lengths = (y >= 0).sum(1)
        times = torch.full((len(x),), x.shape[1])
        losses["ctc"] = lambda: functional.ctc_loss(
            functional.log_softmax(x, 2).transpose(0, 1), y.clamp(min=0), times, lengths
        )
    if case.loss not in losses:
        return None
    loss = losses[case.loss]()
    loss.backward()
    return float(loss.detach()), x.grad.numpy()


@pytest.fixture(scope="module")
def machine() -> Any:
    builder = relax.BlockBuilder()
    for case in CASES:
        made, values = case.made, case.values()
        output, labels = (
            relax.Var(n, relax.TensorType(v.shape, str(v.dtype)))
            for n, v in zip(("output", "labels"), values, strict=True)
        )
        with builder.function(case.name, [output, labels]):
            with builder.dataflow():
                returned = builder.emit_output(relax.Tuple(list(made.emit(builder, output, labels))))
            builder.emit_func_output(returned)
    return relax.VirtualMachine(tvm.compile(builder.get(), target=Target({"kind": "llvm"})), tvm.cpu())


def _run(machine: Any, case: LossCase, output: Array, labels: Array) -> tuple[float, Array]:
    loss, gradient = machine[case.name](runtime.tensor(output), runtime.tensor(labels))
    return float(loss.numpy()), gradient.numpy()


def test_every_loss_is_tested() -> None:
    assert {c.loss for c in CASES} == set(LOSSES) == set(REFERENCES) == set(HOST_LOSSES)


@pytest.mark.compile
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_loss_is_the_formula(case: LossCase, seed: int, machine: Any) -> None:
    output, labels = case.values(seed)
    loss, _ = _run(machine, case, output, labels)
    assert loss == pytest.approx(REFERENCES[case.loss](output, labels, case.options), rel=1e-10)


HOST_CASES = [
    c for c in CASES if c.options.label_smoothing == 0 and not c.options.class_weights and not c.options.has_label_rows
]


@pytest.mark.parametrize("case", HOST_CASES, ids=lambda c: c.name)
def test_the_host_evaluates_the_same_loss(case: LossCase) -> None:
    """Label smoothing, weights and mixed labels are a matter of training alone: the host's loss leaves them out."""
    output, labels = case.values(3)
    found = loss_metric(case.loss, case.options).values(output, labels)
    assert found.mean() == pytest.approx(REFERENCES[case.loss](output, labels, case.options), rel=1e-10)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_gradient_is_the_finite_difference_of_the_loss(case: LossCase, machine: Any) -> None:
    output, labels = case.values()
    expected = np.zeros_like(output)
    for index in np.ndindex(output.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = output.copy()
            moved[index] += sign * STEP
            ends.append(_run(machine, case, moved, labels)[0])
        expected[index] = (ends[0] - ends[1]) / (2 * STEP)
    np.testing.assert_allclose(_run(machine, case, output, labels)[1], expected, rtol=0, atol=2e-7)


@pytest.mark.compile
@pytest.mark.parametrize("case", [c for c in CASES if c.loss not in ("focal", "nt-xent", "onnx")], ids=lambda c: c.name)
def test_loss_and_gradient_are_those_of_torch(case: LossCase, machine: Any) -> None:
    output, labels = case.values(2)
    if case.options.has_label_rows and case.options.class_weights:  # torch does not divide by the weights of rows
        labels = labels.argmax(axis=1)
        expected = _in_torch(case, output, labels)
        labels = np.eye(output.shape[1])[labels]
    else:
        expected = _in_torch(case, output, labels)
    assert expected is not None
    loss, gradient = _run(machine, case, output, labels)
    assert loss == pytest.approx(expected[0], rel=1e-9)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("loss", "shape", "expected"),
    [
        ("cross-entropy", (8, 10), (8,)),
        ("cross-entropy", (2, 5, 16, 16), (2, 16, 16)),
        ("focal", (2, 5, 16, 16), (2, 16, 16)),
        ("nt-xent", (8, 32), (8,)),
        ("bce", (8, 10), (8, 10)),
        ("kl", (8, 10), (8, 10)),
        ("distillation", (8, 10), (8, 10)),
        ("cosine", (8, 10), (8, 10)),
        ("mse", (8,), (8,)),
        ("ctc", (8, 20, 30), (8, 20)),
    ],
)
def test_labels_have_the_shape_that_the_loss_needs(
    loss: str, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert loss_of(TrainOptions(batch=shape[0], loss=loss), shape).label_shape == expected


def test_ctc_takes_rows_as_short_as_the_recipe_says() -> None:
    options = TrainOptions(batch=8, loss="ctc", loss_options=LossOptions(label_length=6))
    assert loss_of(options, (8, 20, 30)).label_shape == (8, 6)


@pytest.mark.parametrize(
    ("shape", "length", "words"),
    [((8, 20), 0, r"\(batch, time, classes\).*\[8, 20\]"), ((8, 20, 30), 21, "label_length = 21 is more than .* 20")],
)
def test_ctc_refuses_what_cannot_be_spelt(shape: tuple[int, ...], length: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        loss_of(TrainOptions(batch=8, loss="ctc", loss_options=LossOptions(label_length=length)), shape)


def test_labels_of_an_onnx_loss_are_its_second_input() -> None:
    made = CASES[-1].made
    assert (made.label_shape, made.label_dtype) == ((4, 3), "float64")


@pytest.mark.parametrize("loss", ["cross-entropy", "focal", "kl"])
def test_a_loss_over_classes_refuses_an_output_without_them(loss: str) -> None:
    with pytest.raises(UsageError, match=r"\(batch, classes, …\).*\[8\]"):
        loss_of(TrainOptions(batch=8, loss=loss), (8,))


@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        ("cross-entropy", LossOptions(label_smoothing=1.0), "label_smoothing"),
        ("kl", LossOptions(temperature=0.0), "temperature"),
        ("focal", LossOptions(focal_gamma=-1.0), "focal_gamma"),
        ("hinge", LossOptions(), "unknown train.loss `hinge`"),
        ("cross-entropy", LossOptions(class_weights=(1.0, 2.0)), "2 class weights, and the model has 3 classes"),
        ("onnx", LossOptions(), "needs a graph"),
    ],
)
def test_settings_that_make_no_sense_are_usage_errors(loss: str, options: LossOptions, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        loss_of(TrainOptions(batch=4, loss=loss, loss_options=options), (4, 3))


NOT_A_SCALAR = onnx_graph([helper.make_node("Sub", ["output", "labels"], ["loss"])], outputs=[4, 3])
NO_MODEL = base64.b64encode(b"not a model at all").decode()


@pytest.mark.parametrize(
    ("graph", "words"),
    [(NO_MODEL, "not an ONNX model"), ("not base64!", "not an ONNX model"), (NOT_A_SCALAR, r"shape \[4, 3\]")],
    ids=["no-model", "no-base64", "no-scalar"],
)
def test_a_broken_loss_graph_is_explained(graph: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        loss_of(TrainOptions(batch=4, loss="onnx", loss_options=LossOptions(graph=graph)), (4, 3))


def _emit_alone(case: LossCase) -> None:
    builder = relax.BlockBuilder()
    output, labels = (relax.Var(n, relax.TensorType(case.shape, "float64")) for n in ("output", "labels"))
    with builder.function("loss", [output, labels]):
        with builder.dataflow():
            case.made.emit(builder, output, labels)
            returned = builder.emit_output(output)
        builder.emit_func_output(returned)


def test_an_onnx_loss_that_ignores_the_output_is_refused() -> None:
    graph = onnx_graph([helper.make_node("ReduceMean", ["labels"], ["loss"], keepdims=0)])
    with pytest.raises(UsageError, match="does not depend"):
        _emit_alone(LossCase(loss="onnx", shape=(4, 3), options=LossOptions(graph=graph)))


LABEL_BOUNDS = {"cross-entropy": (0, 2), "focal": (0, 2), "ctc": (-1, 2)}


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "onnx"])
def test_labels_that_number_classes_have_bounds(name: str) -> None:
    shape = (2, 5, 3) if name == "ctc" else (2, 3)
    assert LOSSES[name](LossOptions(), shape).label_bounds == LABEL_BOUNDS.get(name)


def test_rows_of_shares_have_no_bounds() -> None:
    assert LOSSES["cross-entropy"](LossOptions(has_label_rows=True), (2, 3)).label_bounds is None


@pytest.mark.parametrize(("ignored", "bounds"), [(None, (0, 2)), (-100, (-100, 2)), (255, (0, 255))])
def test_labels_of_a_loss_that_is_a_graph_have_bounds_where_it_looks_them_up(
    ignored: int | None, bounds: tuple[int, int]
) -> None:
    settings = {} if ignored is None else {"ignore_index": ignored}
    nodes = [
        helper.make_node("ReduceMin", ["labels"], ["label"], axes=[1], keepdims=0),
        helper.make_node("SoftmaxCrossEntropyLoss", ["output", "label"], ["loss"], **settings),
    ]
    assert loss_of_graph(nodes).label_bounds is None  # they are computed
    nodes = [
        helper.make_node("Flatten", ["labels"], ["label"], axis=0),
        helper.make_node("Squeeze", ["label"], ["flat"]),
        helper.make_node("Concat", ["output"] * 3, ["outputs"], axis=0),
        helper.make_node("SoftmaxCrossEntropyLoss", ["outputs", "flat"], ["loss"], **settings),
    ]
    assert loss_of_graph(nodes).label_bounds == bounds


def loss_of_graph(nodes: list[Any]) -> Loss:
    options = LossOptions(graph=onnx_graph(nodes, labels=TensorProto.INT64))
    return LOSSES["onnx"](options, (2, 3))
