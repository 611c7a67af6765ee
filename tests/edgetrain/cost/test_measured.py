from __future__ import annotations

import pytest

from edgetrain.cost.analytic import OpCost
from edgetrain.cost.measured import measured_costs
from edgetrain.errors import InternalError
from edgetrain.units import Joules, Seconds

MODELLED = {"step": {"a": OpCost(seconds=Seconds(1.0), joules=Joules(2.0))}}


def test_seconds_are_measured_and_joules_stay_modelled() -> None:
    costs = measured_costs(MODELLED, {"step": {"a": 0.25}})
    assert costs == {"step": {"a": OpCost(seconds=Seconds(0.25), joules=Joules(2.0))}}


@pytest.mark.parametrize("profile", [{}, {"step": {}}, {"step": {"a": 1.0, "b": 1.0}}])
def test_a_profile_of_other_ops_is_rejected(profile: dict[str, dict[str, float]]) -> None:
    with pytest.raises(InternalError, match="`step`"):
        measured_costs(MODELLED, profile)
