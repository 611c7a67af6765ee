from __future__ import annotations

from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.graph.update_report import update_report

SHAPES = {"w": (4, 3), "b": (4,), "lora.A:w": (2, 3)}


def tensor(name: str, shape: tuple[int, ...], role: Role) -> Tensor:
    return Tensor(name=name, shape=shape, dtype="float32", role=role)


TENSORS = [
    *(tensor(n, s, Role.PARAMETER) for n, s in SHAPES.items()),
    tensor("momentum:b", (4,), Role.STATE),
    tensor("momentum:lora.A:w", (2, 3), Role.STATE),
    tensor("x", (4,), Role.INPUT),
]
GRAPH = TrainGraph(
    name="tiny",
    tensors={t.name: t for t in TENSORS},
    functions={
        "step": tuple(
            Op(name=f"update.{n}", kernel="k", reads=(n, "x"), writes=(n,), phase=Phase.UPDATE)
            for n in ("b", "lora.A:w")
        ),
        "evaluate": (),
    },
)
SECONDS = {"update.b": 0.25, "update.lora.A:w": 0.5}


def test_what_is_trained_is_counted_with_its_state_and_gradient() -> None:
    report = update_report(GRAPH, "lora", ("b", "lora.A:w"), SECONDS)
    assert (report.parameters, report.all_parameters) == (4 + 6, 12 + 4 + 6)
    assert (report.parameter_bytes, report.state_bytes, report.gradient_bytes) == (40, 40, 40)
    assert report.total_bytes == 120
    assert report.seconds_per_step == 0.75


def test_state_belongs_to_the_parameter_it_is_named_after_and_no_other() -> None:
    assert update_report(GRAPH, "names", ("w",), SECONDS).state_bytes == 0


def test_the_line_for_people_names_every_number() -> None:
    text = update_report(GRAPH, "lora", ("b", "lora.A:w"), SECONDS).to_text()
    assert text == (
        "update lora: 10 of 22 parameters (45.5 %), 120B (40B parameters, 40B state, 40B gradients), "
        "modelled 750.0 ms a step"
    )


def test_json_holds_the_total_too() -> None:
    assert update_report(GRAPH, "bias", ("b",), SECONDS).to_json()["total_bytes"] == 48
