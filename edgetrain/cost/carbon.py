"""Grams of CO2 for joules, from a stated intensity of the electricity."""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.errors import UsageError

_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class CarbonIntensity:
    """What a kilowatt-hour emits, and who says so."""

    g_per_kwh: float
    source: str

    def grams(self, joules: float) -> float:
        return joules / _JOULES_PER_KWH * self.g_per_kwh


WORLD_AVERAGE = CarbonIntensity(
    g_per_kwh=473.0, source="world average of 2024, life cycle; Ember, Global Electricity Review 2025"
)


def parse_intensity(text: str) -> CarbonIntensity:
    """`"56"` or `"56g/kWh"` as the user's own intensity. Raises `UsageError` for anything else."""
    number = text.strip().lower().removesuffix("/kwh").removesuffix("g").strip()
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"`{text}` is not an intensity of electricity", fix="write grams of CO2 per kWh, like `56`")
    return CarbonIntensity(g_per_kwh=value, source="given with --co2")
