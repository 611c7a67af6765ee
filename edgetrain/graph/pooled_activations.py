"""`max_pool(relu(x))` becomes `relu(max_pool(x))`: the same values, and the same gradients, from a smaller tensor.

The largest of some rectified numbers is the largest of the numbers, rectified. Where it is positive the same element
wins; where it is not, no gradient passes either way. So what is kept for the backward pass is the pooled tensor, which
the next layer wants anyway, instead of one as large as the pool's input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgetrain._tvm import relax
from edgetrain.graph.rewrite import Replace, calls, replace_calls
from edgetrain.model.model import Model

_RELU, _POOL = "relax.nn.relu", "relax.nn.max_pool2d"


def activate_after_pooling(model: Model) -> Model:
    """The model with each rectifier that a max pool alone reads moved behind that pool; the same one where none is."""
    uses = Counter(_read(model))
    rectified = {var: call for var, call in calls(model) if call.op.name == _RELU and uses[var] == 1}
    replacements: dict[Any, Replace] = {}
    for _, call in calls(model):
        if call.op.name == _POOL and call.args[0] in rectified:
            replacements |= {rectified[call.args[0]]: _left_out, call: _pool_then_rectify}
    return replace_calls(model, replacements, {}) if replacements else model


def _read(model: Model) -> Iterator[Any]:
    """Every variable as often as it is read, by calls and as a result."""
    bindings = (binding for block in model.function.body.blocks for binding in block.bindings)
    waiting = [model.function.body.body, *(binding.value for binding in bindings)]
    while waiting:
        match waiting.pop():
            case relax.Var() as variable:
                yield variable
            case relax.Tuple() as several:
                waiting.extend(several.fields)
            case relax.TupleGetItem() as one:
                waiting.append(one.tuple_value)
            case relax.Call() as call:
                waiting.extend(call.args)


def _left_out(_builder: Any, _call: Any, arguments: Sequence[Any], _added: Mapping[str, Any]) -> Any:
    return arguments[0]


def _pool_then_rectify(builder: Any, call: Any, arguments: Sequence[Any], _added: Mapping[str, Any]) -> Any:
    return relax.op.nn.relu(builder.emit(relax.Call(call.op, list(arguments), call.attrs, call.ty_args)))
