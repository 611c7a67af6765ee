"""Measured costs: seconds from a profiling run replace those of the roofline. Joules stay modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgetrain.cost.analytic import OpCost
from edgetrain.errors import InternalError
from edgetrain.units import Seconds

SecondsByFunction = Mapping[str, Mapping[str, float]]


def measured_costs(
    modelled: Mapping[str, Mapping[str, OpCost]], seconds: SecondsByFunction
) -> Mapping[str, Mapping[str, OpCost]]:
    """The modelled costs with measured times.

    Raises `InternalError` unless the same ops of the same functions were modelled and measured.
    """
    for function, costs in modelled.items():
        if costs.keys() != seconds.get(function, {}).keys():
            raise InternalError(f"the profile of `{function}` is not of this graph's ops")
    return {
        function: {op: replace(cost, seconds=Seconds(seconds[function][op])) for op, cost in costs.items()}
        for function, costs in modelled.items()
    }
