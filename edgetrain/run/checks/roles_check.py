"""Does a step change what it may, and nothing else? Asked of the program, and of the model file by itself.

With a learning rate of 0 only running statistics move. Which tensors these are is read from the file, node by node, not
taken from the importer: a tensor that it took for a statistic although a layer learns it is found here.
"""

from __future__ import annotations

from pathlib import Path

from edgetrain.graph.ir import LEARNING_RATE, Role
from edgetrain.model.tensor_names import graph_name, onnx_name
from edgetrain.run.checks.check import Finding, Probe
from edgetrain.run.checks.gradient_check import loss_of_step

_MOST_NAMES = 3


def check_roles(probe: Probe, model: Path) -> Finding:
    """Takes one step with a learning rate of 0. `model` is the file that the program was compiled from."""
    roles = _roles_of(model)
    with probe.engine() as engine:
        probe.fill(engine, probe.seed)
        engine.tensor(LEARNING_RATE)[...] = 0.0
        names = [tensor.name for tensor in probe.program.graph.by_role(Role.PARAMETER)]
        before = {name: engine.tensor(name).tobytes() for name in names}
        loss_of_step(engine)
        moved = {name for name in names if engine.tensor(name).tobytes() != before[name]}
    statistics = {name for name in names if roles.get(name) == {True}}
    both = [name for name in names if roles.get(name) == {True, False}]
    overwritten = sorted(name for name in moved if roles.get(name) == {False})
    problems = []
    if both:
        problems.append(f"learned and measured at once: {_listed(both)}")
    if overwritten:
        problems.append(f"changed although the learning rate was 0: {_listed(overwritten)}")
    if problems:
        return Finding(name="roles", is_ok=False, text="; ".join(problems))
    text = f"a step with learning rate 0 leaves {len(names) - len(statistics)} learned tensors as they are"
    measured = f", and moves {len(moved)} of {len(statistics)} running statistics" if statistics else ""
    return Finding(name="roles", is_ok=True, text=text + measured)


def _roles_of(model: Path) -> dict[str, set[bool]]:
    """Of each stored tensor, whether nodes read it as a running statistic, as something learned, or both."""
    import onnx  # here: no other check needs it

    from edgetrain.model.tensor_uses import STATISTICS, GraphIndex

    index = GraphIndex(onnx.load(str(model)))
    return {graph_name(name): {use.role in STATISTICS for use in index.uses(name)} for name in index.stored}


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(f"`{onnx_name(name)}`" for name in names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
