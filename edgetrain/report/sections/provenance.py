"""What it takes to get the same bits again: where it ran, the hashes, the versions, and the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.run_record import RunRecord
from edgetrain.report.sections.numbers import plural

_HASHES = {
    "model_sha256": "model before training",
    "program_sha256": "program",
    "parameters_sha256": "trained parameters",
}


def provenance(run: RunRecord) -> Section:
    report = run.report
    rows: list[tuple[str, Child]] = [
        ("ran on", f"{report.get('ran_on')}, {plural(int(report.get('threads', 1)), 'thread')}"),
        ("planned for", str(report.get("target"))),
        ("planner", str(report.get("solver") or "unknown")),
        ("seed", str(report.get("seed"))),
    ]
    energy = report.get("energy")
    if energy:
        co2 = f"{energy['co2_g_per_kwh']:g} g/kWh ({energy['co2_source']})"
        rows.append(("CO2 intensity", co2))
    rows += [(f"SHA-256, {name}", element("code", str(report[key]))) for key, name in _HASHES.items() if key in report]
    versions: Mapping[str, str] = report.get("versions") or {}
    rows += [(name, version) for name, version in sorted(versions.items())]
    return Section(
        name="provenance",
        title="Environment and recipe",
        note="The same recipe, data, seed, versions and threads give the same parameters, bit for bit.",
        body=joined(listed(rows), _recipe(run.recipe)),
    )


def _recipe(recipe: Mapping[str, Any]) -> Markup:
    summary = element("summary", "The recipe, every value that is set")
    return element("details", summary, element("pre", element("code", recipe_text(recipe)), tabindex=0))


def listed(rows: Sequence[tuple[str, Child]]) -> Markup:
    return element("dl", *(joined(element("dt", name), element("dd", value)) for name, value in rows), class_="list")


def recipe_text(recipe: Mapping[str, Any]) -> str:
    """A line for each value that is set, as overrides are written on the command line."""
    is_unset: tuple[Any, ...] = (None, "", [])
    lines = (f"{name}={_value(value)}" for name, value in flat(recipe).items() if value not in is_unset)
    return "\n".join(line for line in lines if not line.startswith("format="))


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"train": {"epochs": 3}}` as `{"train.epochs": 3}`, as overrides are written."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        elif not isinstance(value, Mapping):
            found[f"{prefix}{name}"] = value
    return found


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else f"{value}"
