"""What an update mode costs: parameters, bytes and modelled seconds a step, from the training graph alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from edgetrain.graph.ir import STEP, Role, TrainGraph
from edgetrain.units import Seconds, show_bytes, show_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """`gradient_bytes` counts every gradient, though each lives only until its update where nothing clips the norm."""

    mode: str
    parameters: int  # elements that are trained
    all_parameters: int
    parameter_bytes: int
    state_bytes: int
    gradient_bytes: int
    seconds_per_step: Seconds  # modelled, with nothing recomputed or paged

    @property
    def total_bytes(self) -> int:
        return self.parameter_bytes + self.state_bytes + self.gradient_bytes

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "total_bytes": self.total_bytes}

    def to_text(self) -> str:
        """One line for people."""
        share = 100 * self.parameters / self.all_parameters if self.all_parameters else 0.0
        return (
            f"update {self.mode}: {self.parameters:,} of {self.all_parameters:,} parameters ({share:.3g} %), "
            f"{show_bytes(self.total_bytes)} ({show_bytes(self.parameter_bytes)} parameters, "
            f"{show_bytes(self.state_bytes)} state, {show_bytes(self.gradient_bytes)} gradients), "
            f"modelled {show_seconds(self.seconds_per_step)} a step"
        )


def update_report(
    graph: TrainGraph, mode: str, trained: Collection[str], step_seconds: Mapping[str, float]
) -> UpdateReport:
    """The report of a graph built for `mode`; `step_seconds` are the modelled seconds of each op of `step` by name."""
    parameters = [t for t in graph.by_role(Role.PARAMETER) if t.name in set(trained)]
    owners = {f":{t.name}" for t in parameters}
    state = [t for t in graph.by_role(Role.STATE) if t.name[t.name.index(":") :] in owners]
    return UpdateReport(
        mode=mode,
        parameters=sum(t.elements for t in parameters),
        all_parameters=sum(t.elements for t in graph.by_role(Role.PARAMETER)),
        parameter_bytes=sum(t.nbytes for t in parameters),
        state_bytes=sum(t.nbytes for t in state),
        gradient_bytes=sum(t.nbytes for t in parameters),
        seconds_per_step=Seconds(sum(step_seconds[op.name] for op in graph.functions[STEP])),
    )
