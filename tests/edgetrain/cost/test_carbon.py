from __future__ import annotations

import pytest

from edgetrain.cost.carbon import WORLD_AVERAGE, parse_intensity
from edgetrain.errors import UsageError


def test_a_kilowatt_hour_emits_the_intensity() -> None:
    assert WORLD_AVERAGE.grams(3.6e6) == WORLD_AVERAGE.g_per_kwh
    assert parse_intensity("56").grams(1.8e6) == 28


@pytest.mark.parametrize("text", ["56", "56g", "56 g/kWh", "56.0"])
def test_an_intensity_may_have_its_unit(text: str) -> None:
    assert parse_intensity(text).g_per_kwh == 56


@pytest.mark.parametrize("text", ["", "green", "-1", "nan", "inf", "5kg"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="intensity"):
        parse_intensity(text)


def test_the_default_names_its_source() -> None:
    assert "Ember" in WORLD_AVERAGE.source
