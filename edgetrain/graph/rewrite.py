"""A model with some of its calls replaced and some parameters added: what adapters are made with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import relax
from edgetrain.model.model import Array, Model

VIEWS = ("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.broadcast_to")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Argument `position` of `call` is the parameter `parameter`, or what the calls `views` made of it."""

    parameter: str
    call: Any
    position: int
    views: tuple[Any, ...]

    @property
    def op(self) -> str:
        return str(self.call.op.name)


def calls(model: Model) -> Iterator[tuple[Any, Any]]:
    """Every (variable, call of a Relax op) of the model, in order."""
    for block in model.function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and hasattr(binding.value.op, "name"):
                yield binding.var, binding.value


def parameter_uses(model: Model) -> list[Use]:
    """Where parameters are used, in order; a view of one is no use of its own."""
    parameters = set(model.parameters)
    origins: dict[Any, tuple[str, tuple[Any, ...]]] = {
        v: (str(v.name), ()) for v in model.function.params if str(v.name) in parameters
    }
    uses = []
    for var, call in calls(model):
        if call.op.name in VIEWS and call.args[0] in origins:
            name, views = origins[call.args[0]]
            origins[var] = (name, (*views, call))
            continue
        for position, argument in enumerate(call.args):
            if isinstance(argument, relax.Var) and argument in origins:
                name, views = origins[argument]
                uses.append(Use(parameter=name, call=call, position=position, views=views))
    return uses


Replace = Callable[[Any, Any, Sequence[Any], Mapping[str, Any]], Any]


def replace_calls(model: Model, replacements: Mapping[Any, Replace], added: Mapping[str, Array]) -> Model:
    """The model with parameters `added`, and each call of `replacements` emitted by its function instead.

    The function gets the builder, the old call, its new arguments and the variables of `added`, and returns the
    expression that stands for the call's result.
    """
    builder = relax.BlockBuilder(model.module)
    name = _function_name(model)
    old = list(model.function.params)
    extra = {n: relax.Var(n, relax.TensorType(a.shape, str(a.dtype))) for n, a in added.items()}
    values: dict[Any, Any] = {v: relax.Var(str(v.name), v.ty) for v in old}
    sources: dict[str, str] = {}
    with builder.function(f"{name}_adapted", [*(values[v] for v in old), *extra.values()]):
        with builder.dataflow():
            for block in model.function.body.blocks:
                for binding in block.bindings:
                    var, expr = binding.var, binding.value
                    replace = replacements.get(expr) if isinstance(expr, relax.Call) else None
                    fresh = _substituted(expr, values)
                    if replace is not None:
                        fresh = replace(builder, expr, list(fresh.args), extra)
                    values[var] = fresh if isinstance(fresh, relax.Var) else builder.emit(fresh)
                    sources[str(values[var].name)] = model.sources.get(str(var.name), "")
            returned = builder.emit_output(_substituted(model.function.body.body, values))
        builder.emit_func_output(returned)
    module = builder.get()
    return dataclasses.replace(
        model,
        function=module[f"{name}_adapted"],
        module=module,
        parameters={**model.parameters, **added},
        sources=sources,
    )


def _function_name(model: Model) -> str:
    return str(model.function.attrs["global_symbol"])


def _substituted(expr: Any, values: Mapping[Any, Any]) -> Any:
    match expr:
        case relax.Var():
            return values[expr]
        case relax.Tuple():
            return relax.Tuple([_substituted(f, values) for f in expr.fields])
        case relax.TupleGetItem():
            return relax.TupleGetItem(_substituted(expr.tuple_value, values), expr.index)
        case relax.Call():
            return relax.Call(expr.op, [_substituted(a, values) for a in expr.args], expr.attrs, expr.ty_args)
        case _:
            return expr
