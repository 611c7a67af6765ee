from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgetrain._tvm import Target, relax, runtime, tvm
from edgetrain.errors import UsageError
from edgetrain.graph.build import CLIP_EPSILON, EVALUATE_PREFIX, BuiltStep, build_step
from edgetrain.graph.ir import LABELS, LEARNING_RATE, LOSS, Role
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from tests.edgetrain.graph.small_models import BATCH, cnn_model, mlp_model

Array = npt.NDArray[Any]
RATE = 0.1


def _options(**changes: Any) -> TrainOptions:
    return TrainOptions(batch=BATCH, **changes)


def _run(built: BuiltStep, function: str, values: dict[str, Array]) -> dict[str, Array]:
    """One call on the virtual machine: new values of what the function writes."""
    machine = relax.VirtualMachine(tvm.compile(built.module, target=Target({"kind": "llvm"})), tvm.cpu())
    signature = built.functions[function]
    arguments = [runtime.tensor(np.array(values[n], dtype=built.tensors[n].dtype)) for n in signature.arguments]
    results = machine[function](*arguments)
    return {n: r.numpy() for n, r in zip(signature.results, results, strict=True)}


def _inputs(built: BuiltStep, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    values: dict[str, Array] = dict(built.initial)
    for tensor in built.tensors.values():
        if tensor.role is Role.INPUT:
            values[tensor.name] = rng.standard_normal(tensor.shape).astype(np.float32)
    values[LABELS] = rng.integers(0, 3, built.tensors[LABELS].shape)
    values[LEARNING_RATE] = np.array(RATE, np.float32)
    return values


def _mlp_gradients(values: dict[str, Array]) -> tuple[float, dict[str, Array]]:
    """Mean cross-entropy of the MLP and its gradients, by hand in float64."""
    x, labels = values["x"].astype(np.float64), values[LABELS]
    w0, b0, w1, b1 = (values[n].astype(np.float64) for n in ("fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"))
    before = x @ w0.T + b0
    hidden = np.maximum(before, 0)
    logits = hidden @ w1.T + b1
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = float(-np.log(probabilities[rows, labels]).mean())
    d_logits = probabilities.copy()
    d_logits[rows, labels] -= 1
    d_logits /= len(x)
    d_before = (d_logits @ w1) * (before > 0)
    return loss, {
        "fc0.weight": d_before.T @ x,
        "fc0.bias": d_before.sum(0),
        "fc1.weight": d_logits.T @ hidden,
        "fc1.bias": d_logits.sum(0),
    }


@pytest.mark.compile
def test_a_step_is_forward_loss_backward_and_update() -> None:
    built = build_step(mlp_model(), _options())
    values = _inputs(built)
    results = _run(built, "step", values)
    loss, gradients = _mlp_gradients(values)
    assert float(results[LOSS]) == pytest.approx(loss, rel=1e-5)
    assert set(results) == {LOSS, *gradients}
    for name, gradient in gradients.items():
        np.testing.assert_allclose(results[name], values[name] - RATE * gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.compile
@pytest.mark.parametrize("limit", [0.05, 1e6])
def test_clipping_bounds_the_joint_norm_of_all_gradients(limit: float) -> None:
    built = build_step(mlp_model(), _options(clip_norm=limit))
    values = _inputs(built)
    results = _run(built, "step", values)
    _, gradients = _mlp_gradients(values)
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    scale = min(1.0, limit / (norm + CLIP_EPSILON))
    assert (scale < 1.0) == (limit < 1.0), "one case clips, the other does not"
    for name, gradient in gradients.items():
        np.testing.assert_allclose(results[name], values[name] - RATE * scale * gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.compile
def test_accumulating_steps_then_applying_is_one_step_on_the_mean_gradient() -> None:
    built = build_step(mlp_model(), _options(accumulate=2))
    first, second = _inputs(built, seed=1), _inputs(built, seed=2)
    after_first = _run(built, "step", first)
    after_second = _run(built, "step", {**second, **after_first})
    applied = _run(built, "apply", {**second, **after_second})
    parts = [_mlp_gradients(v)[1] for v in (first, second)]
    for name in built.trained:
        mean = (parts[0][name] + parts[1][name]) / 2
        assert name not in after_first, "a step leaves the parameters alone"
        np.testing.assert_allclose(applied[name], built.initial[name] - RATE * mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(applied[f"accumulated:{name}"], np.zeros_like(mean))


@pytest.mark.compile
def test_evaluate_gives_the_logits_on_stored_statistics() -> None:
    built = build_step(cnn_model(), _options())
    values = _inputs(built)
    alone = _run(built, "evaluate", values)[f"{EVALUATE_PREFIX}logits"]
    other = {**values, "image": np.concatenate([values["image"][:1], values["image"][:1] * 9])}
    np.testing.assert_allclose(
        _run(built, "evaluate", other)[f"{EVALUATE_PREFIX}logits"][0],
        alone[0],
        rtol=1e-5,
        err_msg="depends on the batch",
    )


@pytest.mark.compile
def test_batch_norm_blends_its_running_statistics_as_pytorch_does() -> None:
    built = build_step(cnn_model(), _options())
    values = _inputs(built)
    results = _run(built, "step", values)
    x, weight = values["image"].astype(np.float64), values["conv0.weight"].astype(np.float64)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    activations = np.einsum("nchwrs,kcrs->nkhw", windows, weight)
    mean, variance = activations.mean((0, 2, 3)), activations.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(results["norm0.mean"], 0.9 * values["norm0.mean"] + 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        results["norm0.variance"], 0.9 * values["norm0.variance"] + 0.1 * variance, rtol=1e-4, atol=1e-6
    )


def test_frozen_batch_norm_writes_no_statistics() -> None:
    trained = build_step(cnn_model(), _options())
    frozen = build_step(cnn_model(), _options(batchnorm="frozen"))
    assert {"norm0.mean", "norm1.variance"} <= set(trained.functions["step"].results)
    assert not any("mean" in n or "variance" in n for n in frozen.functions["step"].results)


def test_the_last_layers_update_is_emitted_before_the_first_layers_gradient() -> None:
    """So that a gradient lives as short as possible: results are in the order of emission."""
    results = list(build_step(mlp_model(), _options()).functions["step"].results)
    assert results.index("fc1.weight") < results.index("fc0.weight")


def test_only_what_is_trained_gets_optimizer_state() -> None:
    options = _options(optimizer=OptimizerOptions(kind="adam"), update_mode="head")
    built = build_step(mlp_model(), options)
    states = [n for n, t in built.tensors.items() if t.role is Role.STATE]
    assert states == [f"{p}:{n}" for n in ("fc1.weight", "fc1.bias") for p in ("adam_mean", "adam_square")]
    assert all(not built.initial[n].any() for n in states)


def test_unknown_losses_and_optimizers_are_usage_errors_that_list_the_known() -> None:
    with pytest.raises(UsageError, match=r"unknown train\.loss `hinge`") as caught:
        build_step(mlp_model(), _options(loss="hinge"))
    assert "cross-entropy" in caught.value.fix
    with pytest.raises(UsageError, match=r"unknown train\.optimizer `lion`") as caught:
        build_step(mlp_model(), _options(optimizer=OptimizerOptions(kind="lion")))
    assert "adamw" in caught.value.fix
