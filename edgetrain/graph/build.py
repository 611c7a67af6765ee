"""`Model` + `TrainOptions` → one Relax function per call the device makes.

`step` is forward, loss, backward and every update, each update right after its gradient so that a gradient lives as
short as possible. `evaluate` is the forward pass alone. With gradient accumulation, `step` adds to accumulators and
`apply` updates from them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, shape_of, te, tirx
from edgetrain.graph.adapted import adapt
from edgetrain.graph.adapters import Beside
from edgetrain.graph.autodiff import Tape, differentiate, emit_forward
from edgetrain.graph.gradients.rule import emit_kernel
from edgetrain.graph.ir import APPLY, EVALUATE, LABELS, LOSS, STEP, Role, Tensor
from edgetrain.graph.loss import Loss
from edgetrain.graph.losses import loss_of
from edgetrain.graph.optimizers import ACCUMULATED, Optimizer, optimizer_of, state_prefixes
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.pooled_activations import activate_after_pooling
from edgetrain.graph.products import product_weights
from edgetrain.model.model import Array, Model
from edgetrain.value_bounds import InputBounds

log = logging.getLogger(__name__)

EVALUATE_PREFIX = "evaluate."
CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True, kw_only=True)
class BuiltFunction:
    """`parameters[i]` of the Relax function is the tensor `arguments[i]`; result i is written to `results[i]`."""

    arguments: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BuiltStep:
    """The Relax side of a training graph, before it is lowered and extracted."""

    module: Any
    functions: Mapping[str, BuiltFunction]
    tensors: Mapping[str, Tensor]  # persistent ones
    initial: Mapping[str, Array]  # values of parameters and state
    trained: tuple[str, ...]
    adapters: tuple[Beside, ...] = ()  # beside frozen weights; merged into them on export
    output_axes: Mapping[str, int] = field(default_factory=dict)  # of weights that can be trained in part


@dataclass
class _Emission:
    """One function under construction: variables by tensor name, and the results to return."""

    builder: Any
    variables: dict[str, Any]
    results: dict[str, Any] = field(default_factory=dict)


def build_step(model: Model, options: TrainOptions) -> BuiltStep:
    """Raises `UsageError` for options that do not fit the model, `UnsupportedError` for missing gradients."""
    optimizer = optimizer_of(options)
    loss = loss_of(options, _output_shape(model))
    adapted = adapt(activate_after_pooling(model), options)
    model, trained = adapted.model, adapted.trained
    tensors, initial = _persistent_tensors(model, options, loss, optimizer, trained)
    builder = relax.BlockBuilder(model.module)
    functions = {STEP: _build_training(builder, model, options, loss, optimizer, trained, tensors)}
    if options.accumulate > 1:
        functions[APPLY] = _build_apply(builder, options, optimizer, trained, tensors)
    functions[EVALUATE] = _build_evaluate(builder, model, loss, tensors)
    log.info("built a training step: %d of %d parameters trained", len(trained), len(model.parameters))
    return BuiltStep(
        module=builder.get(),
        functions=functions,
        tensors=tensors,
        initial=initial,
        trained=trained,
        adapters=adapted.adapters,
        output_axes={w.name: w.outputs_axis for w in product_weights(model) if w.name in trained},
    )


def _persistent_tensors(
    model: Model, options: TrainOptions, loss: Loss, optimizer: Optimizer, trained: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Array]]:
    tensors: dict[str, Tensor] = {}
    initial: dict[str, Array] = {}

    def add(name: str, shape: tuple[int, ...], dtype: str, role: Role, bounds: InputBounds | None = None) -> None:
        tensors[name] = Tensor(name=name, shape=shape, dtype=dtype, role=role, bounds=bounds)

    for name, value in model.parameters.items():
        add(name, tuple(value.shape), str(value.dtype), Role.PARAMETER)
        initial[name] = value
    for name in trained:
        for prefix in state_prefixes(options):
            state = f"{prefix}:{name}"
            add(state, tensors[name].shape, tensors[name].dtype, Role.STATE)
            initial[state] = np.zeros(tensors[name].shape, tensors[name].dtype)
    for spec in model.inputs:
        add(spec.name, spec.shape, spec.dtype, Role.INPUT, spec.bounds)
    add(LABELS, loss.label_shape, loss.label_dtype, Role.INPUT, loss.label_bounds)
    for scalar in optimizer.scalars:
        add(scalar, (), "float32", Role.INPUT)
    add(LOSS, (), "float32", Role.OUTPUT)
    for name, ty in zip(model.outputs, model.function.body.body.ty.fields, strict=True):
        add(EVALUATE_PREFIX + name, tuple(int(d) for d in ty.shape), str(ty.dtype), Role.OUTPUT)
    return tensors, initial


def _output_shape(model: Model) -> tuple[int, ...]:
    """The shape of the model's first output, the one the loss reads."""
    return tuple(int(d) for d in model.function.body.body.ty.fields[0].shape)


def _begin(builder: Any, tensors: Mapping[str, Tensor], names: list[str]) -> _Emission:
    variables = {n: relax.Var(n, relax.TensorType(tensors[n].shape, tensors[n].dtype)) for n in names}
    return _Emission(builder=builder, variables=variables)


def _end(emission: _Emission) -> BuiltFunction:
    return BuiltFunction(arguments=tuple(emission.variables), results=tuple(emission.results))


def _arguments(model: Model, emission: _Emission) -> dict[Any, Any]:
    return {v: emission.variables[str(v.name)] for v in model.function.params}


def _build_training(
    builder: Any,
    model: Model,
    options: TrainOptions,
    loss: Loss,
    optimizer: Optimizer,
    trained: tuple[str, ...],
    tensors: Mapping[str, Tensor],
) -> BuiltFunction:
    roles = (Role.PARAMETER, Role.STATE, Role.INPUT)
    emission = _begin(builder, tensors, [t.name for t in tensors.values() if t.role in roles])
    with builder.function(STEP, list(emission.variables.values())):
        with builder.dataflow():
            tape = emit_forward(
                builder,
                model.function,
                _arguments(model, emission),
                model.sources,
                training_batchnorm=options.batchnorm == "train",
            )
            output = _loss_input(tape, loss)
            value, gradient = loss.emit(builder, output, emission.variables[LABELS])
            emission.results[LOSS] = value
            names = {str(v.name): n for n, v in emission.variables.items()}
            for variable, updated in tape.state_updates:
                emission.results[names[str(variable.name)]] = updated
            waiting: dict[str, Any] = {}

            def on_gradient(name: str, value: Any) -> None:
                if options.clip_norm > 0 and options.accumulate == 1:
                    waiting[name] = value  # the norm needs every gradient first
                elif options.accumulate > 1:
                    _emit_accumulate(emission, name, value, options.accumulate)
                else:
                    _emit_update(emission, optimizer, name, value)

            differentiate(
                builder,
                tape,
                output=output,
                output_gradient=gradient,
                trained={emission.variables[n]: n for n in trained},
                on_gradient=on_gradient,
            )
            for name, value in _clipped(builder, waiting, options.clip_norm).items():
                _emit_update(emission, optimizer, name, value)
            returned = builder.emit_output(relax.Tuple(list(emission.results.values())))
        builder.emit_func_output(returned)
    return _end(emission)


def _loss_input(tape: Tape, loss: Loss) -> Any:
    """The model's first output, or the logits behind it where the loss contains the final activation itself."""
    output = tape.outputs[0]
    definition = tape.definitions.get(output)
    if not loss.absorbs or definition is None or str(definition.op.name) != loss.absorbs:
        return output
    is_softmax = loss.absorbs == "relax.nn.softmax"
    over_classes = not is_softmax or int(definition.attrs.axis) % len(shape_of(output)) == loss.class_axis
    return definition.args[0] if over_classes else output


def _emit_update(emission: _Emission, optimizer: Optimizer, name: str, gradient: Any) -> None:
    states = [f"{prefix}:{name}" for prefix in optimizer.state]
    operands = [emission.variables[n] for n in (name, *states)]
    scalars = [emission.variables[n] for n in optimizer.scalars]

    def update(p: Any, g: Any, *rest: Any) -> Any:
        results = optimizer.update(p, g, *rest)
        return results[0] if len(results) == 1 else list(results)

    fresh = emit_kernel(emission.builder, update, operands[0], gradient, *operands[1:], *scalars, fusible=False)
    if not states:
        emission.results[name] = fresh
        return
    for i, written in enumerate((name, *states)):
        emission.results[written] = emission.builder.emit(relax.TupleGetItem(fresh, i))


def _emit_accumulate(emission: _Emission, name: str, gradient: Any, count: int) -> None:
    def accumulate(total: Any, g: Any) -> Any:
        share = tirx.const(1.0 / count, g.dtype)
        return te.compute(g.shape, lambda *i: total[i] + g[i] * share, name="accumulate")

    accumulated = f"{ACCUMULATED}:{name}"
    emission.results[accumulated] = emit_kernel(
        emission.builder, accumulate, emission.variables[accumulated], gradient, fusible=False
    )


def _clipped(builder: Any, gradients: Mapping[str, Any], limit: float) -> Mapping[str, Any]:
    """All gradients scaled so that their joint norm is at most `limit`."""
    if limit <= 0 or not gradients:
        return gradients

    def squared_sum(g: Any) -> Any:
        axes = [te.reduce_axis((0, extent), f"a{i}") for i, extent in enumerate(shape_of(g))]
        return te.compute((), lambda: te.sum(g[tuple(axes)] * g[tuple(axes)], axis=axes), name="squared_sum")

    total = None
    for gradient in gradients.values():
        part = emit_kernel(builder, squared_sum, gradient)
        total = part if total is None else builder.emit(relax.op.add(total, part))

    def clip_scale(squares: Any) -> Any:
        one = tirx.const(1.0, squares.dtype)
        bound = tirx.const(limit, squares.dtype) / (tirx.sqrt(squares[()]) + tirx.const(CLIP_EPSILON, squares.dtype))
        return te.compute((), lambda: tirx.min(one, bound), name="clip_scale")

    scale = emit_kernel(builder, clip_scale, total)
    return {n: builder.emit(relax.op.multiply(g, scale)) for n, g in gradients.items()}


def _build_apply(
    builder: Any,
    options: TrainOptions,
    optimizer: Optimizer,
    trained: tuple[str, ...],
    tensors: Mapping[str, Tensor],
) -> BuiltFunction:
    states = [f"{prefix}:{n}" for n in trained for prefix in (*optimizer.state, ACCUMULATED)]
    emission = _begin(builder, tensors, [*trained, *states, *optimizer.scalars])
    with builder.function(APPLY, list(emission.variables.values())):
        with builder.dataflow():
            totals = {n: emission.variables[f"{ACCUMULATED}:{n}"] for n in trained}
            for name, gradient in _clipped(builder, totals, options.clip_norm).items():
                _emit_update(emission, optimizer, name, gradient)
            for name in trained:
                accumulated = f"{ACCUMULATED}:{name}"
                zeros = relax.op.zeros(tensors[accumulated].shape, tensors[accumulated].dtype)
                emission.results[accumulated] = builder.emit(zeros)
            returned = builder.emit_output(relax.Tuple(list(emission.results.values())))
        builder.emit_func_output(returned)
    return _end(emission)


def _build_evaluate(builder: Any, model: Model, loss: Loss, tensors: Mapping[str, Tensor]) -> BuiltFunction:
    """The outputs as the loss sees them (logits), so that one set of metrics serves every model."""
    inputs = [s.name for s in model.inputs]
    emission = _begin(builder, tensors, [*model.parameters, *inputs])
    with builder.function(EVALUATE, list(emission.variables.values())):
        with builder.dataflow():
            tape = emit_forward(
                builder, model.function, _arguments(model, emission), model.sources, training_batchnorm=False
            )
            outputs = (_loss_input(tape, loss), *tape.outputs[1:])
            for name, output in zip(model.outputs, outputs, strict=True):
                assert dtype_of(output) == tensors[EVALUATE_PREFIX + name].dtype
                emission.results[EVALUATE_PREFIX + name] = output
            returned = builder.emit_output(relax.Tuple(list(emission.results.values())))
        builder.emit_func_output(returned)
    return _end(emission)
