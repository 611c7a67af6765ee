"""What a plan does with memory and time, for a person on one screen and for a script as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from edgetrain.cost.analytic import OpCost
from edgetrain.cost.carbon import WORLD_AVERAGE, CarbonIntensity
from edgetrain.drawing.table import to_html_table
from edgetrain.graph.ir import Phase, Role, TrainGraph
from edgetrain.graph.persistent import align
from edgetrain.graph.traffic import Traffic
from edgetrain.planner.plan import Compute, FunctionPlan, Plan, Replay, Step, paged_tensors, replay, scratch_name
from edgetrain.targets.device import Storage
from edgetrain.units import (
    Joules,
    Seconds,
    show_bytes,
    show_bytes_both,
    show_bytes_up,
    show_grams,
    show_joules,
    show_seconds,
)

FORMAT = "edgetrain.explanation/1"

PERSISTENT_LABELS: Mapping[Role, str] = {
    Role.PARAMETER: "parameters",
    Role.STATE: "state",
    Role.CONSTANT: "constants",
    Role.INPUT: "inputs",
    Role.OUTPUT: "outputs",
}
_LABELS = (*PERSISTENT_LABELS.values(), "activations", "gradients", "scratch")
_GRADIENT_PHASES = (Phase.BACKWARD, Phase.UPDATE)
_BIGGEST = 3
_BAR_WIDTH = 30
_NO_GAP = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation:
    """`bytes_by_label` adds up, with `fragmentation_bytes`, to `peak_bytes`; sizes are as aligned in the arena."""

    fits: bool
    peak_bytes: int
    beside_bytes: int  # code, stacks and buffers, which the budget has to hold as well
    budget_bytes: int | None
    fragmentation_bytes: int
    bytes_by_label: Mapping[str, int]
    peak_function: str
    peak_op: str
    peak_source: str  # what a person would call the op at the peak
    biggest: Mapping[str, int]  # the largest temporaries at the peak
    biggest_made_by: Mapping[str, str]  # the op that makes each of them, as a person would call it
    recomputed: Mapping[str, int]  # `function/op` -> runs beyond the first
    paged: tuple[str, ...]
    seconds: float
    is_timed: bool  # whether the seconds are those of measured kernels; else they are modelled, as joules always are
    joules: float
    co2_g: float  # for those joules
    co2_g_per_kwh: float
    slowdown: float | None  # modelled time of `step` against keeping everything
    keep_all_bytes: int | None
    stored: tuple[str, ...]  # persistent tensors that live in storage between their uses
    solver: str
    gap: float | None  # how much cheaper `step` could be at most, as far as the solver has proven
    written_bytes: int  # to storage, in a step
    smallest_bytes: int | None  # the least budget that works; None where nobody looked for it
    traffic: Traffic | None  # of a step that recomputes nothing; None where nobody counted

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def __repr__(self) -> str:
        return f"<Explanation: {self._headline()[0]}>"

    def _repr_html_(self) -> str:
        """A row for each kind of memory at the peak, and for each thing that a step costs."""
        sizes = {label: size for label, size in self.bytes_by_label.items() if size}
        memory = [(label, f"{show_bytes(size)}, {size / max(1, self.peak_bytes):.1%}") for label, size in sizes.items()]
        work = [(name, text) for name, _, text in (line.partition(": ") for line in self._work())]
        return to_html_table(self._headline()[0], (*memory, *work))

    def to_text(self) -> str:
        return "\n".join((*self._headline(), "", *self._memory(), "", *self._work())) + "\n"

    def _headline(self) -> tuple[str, ...]:
        program = f" and {show_bytes(self.beside_bytes)} for the program" if self.beside_bytes else ""
        if self.budget_bytes is None:
            return (f"peak {show_bytes_both(self.peak_bytes)}{program}, no memory budget",)
        word = "fits" if self.fits else "DOES NOT FIT"
        share = (self.peak_bytes + self.beside_bytes) / max(1, self.budget_bytes)
        budget = show_bytes_both(self.budget_bytes)
        return (f"{word}: peak {show_bytes_both(self.peak_bytes)}{program and program + ','} of {budget}: {share:.1%}",)

    def _memory(self) -> tuple[str, ...]:
        rows = {label: size for label, size in self.bytes_by_label.items() if size}
        rows["fragmentation"] = self.fragmentation_bytes
        lines = [
            f"memory at the peak, op `{self.peak_op}` ({self.peak_source or 'no source'}) in {self.peak_function}:"
        ]
        for label, size in rows.items():
            bar = "█" * round(_BAR_WIDTH * size / max(1, self.peak_bytes))
            lines.append(f"  {label:<14}{show_bytes(size):>9} {size / max(1, self.peak_bytes):>6.1%} {bar}".rstrip())
        if self.biggest:
            named = ", ".join(f"{self.name_of(name)} {show_bytes(size)}" for name, size in self.biggest.items())
            lines.append(f"  largest temporaries: {named}")
        return tuple(lines)

    def _work(self) -> tuple[str, ...]:
        time = f"{show_seconds(self.seconds)}{' of measured kernels' if self.is_timed else ''}"
        lines = [f"one step: {time}, {show_joules(self.joules)} (modelled), {self._co2}"]
        if self.traffic is not None:
            lines.append(f"traffic: {self.traffic.to_text()}")
        if self.slowdown is not None and self.keep_all_bytes is not None:
            kept = show_bytes(self.keep_all_bytes)
            lines.append(f"slowdown: {self.slowdown:.2f}x against keeping everything, which needs {kept}")
        lines.append(f"recomputed: {sum(self.recomputed.values())} runs of {len(self.recomputed)} ops")
        written = f", {show_bytes(self.written_bytes)} written a step" if self.written_bytes else ""
        lines.append(f"paged: {len(self.paged)} tensors{written}")
        if self.stored:
            lines.append(f"stored: {len(self.stored)} parameters and states live in storage between their uses")
        lines.append(f"solver: {self.solver}, {gap_text(self.gap, is_everything_kept=self._is_everything_kept)}")
        if self.smallest_bytes is not None:
            least = f"{show_bytes_up(self.smallest_bytes)} ({self.smallest_bytes} bytes)"
            lines.append(f"smallest budget that works: {least}")
        return tuple(lines)

    @property
    def _co2(self) -> str:
        return f"{show_grams(self.co2_g)} CO2 at {self.co2_g_per_kwh:g} g/kWh"

    @property
    def _is_everything_kept(self) -> bool:
        return not self.recomputed and not self.paged

    def name_of(self, tensor: str) -> str:
        """The tensor with the op that makes it: `step.12.0` alone tells a person nothing."""
        maker = self.biggest_made_by.get(tensor)
        return f"`{tensor}` ({maker})" if maker else f"`{tensor}`"


def gap_text(gap: float | None, *, is_everything_kept: bool = False) -> str:
    """What is proven about a plan, in words."""
    if is_everything_kept:
        return "nothing to decide: everything is kept"
    if gap is None:
        return "no bound"
    return (
        f"proven within {100 * gap:.2g} % of the least possible" if gap > _NO_GAP else "proven to be the least possible"
    )


def explain(
    graph: TrainGraph,
    plan: Plan,
    *,
    carbon: CarbonIntensity = WORLD_AVERAGE,
    is_timed: bool = False,
    smallest_bytes: int | None = None,
    traffic: Traffic | None = None,
) -> Explanation:
    """Replays the plan and says who holds what when memory is fullest. `is_timed`: it was made of measured times.

    Raises `InternalError` if the plan does not belong to the graph or is not valid.
    """
    replays = {name: replay_bytes(graph, function_plan) for name, function_plan in plan.functions.items()}
    function = max(plan.functions, key=lambda name: _top(plan.functions[name], plan.persistent_bytes))
    function_plan, found = plan.functions[function], replays[function]
    op = _op_at(function_plan.steps, found.peak_step)
    temporaries = _temporaries_at_peak(graph, function, found)
    by_label = _bytes_by_label(graph, function, temporaries, frozenset(plan.stored))
    recomputed = {f"{name}/{op}": runs for name, r in replays.items() for op, runs in r.recomputed.items()}
    budget_bytes = plan.budget.memory_bytes
    named = {name: size for name, size in temporaries.items() if name in graph.tensors}
    biggest = dict(sorted(named.items(), key=lambda item: (-item[1], item[0]))[:_BIGGEST])
    makers = {name: op.source or op.name for op in graph.functions[function] for name in op.writes}
    return Explanation(
        fits=budget_bytes is None or plan.needed_bytes <= budget_bytes,
        peak_bytes=plan.peak_bytes,
        beside_bytes=plan.beside_bytes,
        budget_bytes=budget_bytes,
        fragmentation_bytes=plan.peak_bytes - sum(by_label.values()),
        bytes_by_label=by_label,
        peak_function=function,
        peak_op=op,
        peak_source=graph.op(function, op).source if op else "",
        biggest=biggest,
        biggest_made_by={name: makers[name] for name in biggest if name in makers and graph.tensors[name].is_temporary},
        recomputed=recomputed,
        paged=tuple(sorted({t for s in plan.functions.values() for t in paged_tensors(s.steps)})),
        seconds=plan.seconds,
        is_timed=is_timed,
        joules=plan.joules,
        co2_g=carbon.grams(plan.joules),
        co2_g_per_kwh=carbon.g_per_kwh,
        slowdown=plan.seconds / plan.keep_all_seconds if plan.keep_all_seconds else None,
        keep_all_bytes=plan.keep_all_bytes,
        stored=plan.stored,
        solver=plan.solver,
        gap=plan.gap,
        written_bytes=plan.written_bytes,
        smallest_bytes=smallest_bytes,
        traffic=traffic,
    )


def replay_bytes(graph: TrainGraph, function_plan: FunctionPlan) -> Replay:
    """Only bytes matter here; times are in the plan already, so everything costs nothing."""
    nothing = OpCost(seconds=Seconds(0.0), joules=Joules(0.0))
    storage = Storage(
        read_bytes_per_s=1.0,
        write_bytes_per_s=1.0,
        joules_per_byte_read=0.0,
        joules_per_byte_written=0.0,
        latency_s=0.0,
    )
    costs = {op.name: nothing for op in graph.functions[function_plan.function]}
    return replay(graph, function_plan.function, function_plan.steps, costs, storage)


def _top(function_plan: FunctionPlan, persistent_bytes: int) -> int:
    return max((p.offset + p.nbytes for p in function_plan.placements), default=persistent_bytes)


def _op_at(steps: Sequence[Step], index: int) -> str:
    """The op that runs at a step, or the next to run: a page-in serves the op that follows it."""
    following = (step.op for step in steps[index:] if isinstance(step, Compute))
    return next(following, "")


def _temporaries_at_peak(graph: TrainGraph, function: str, found: Replay) -> Mapping[str, int]:
    return {stay.tensor: stay.nbytes for stay in found.stays if stay.start <= found.peak_step <= stay.end}


def _bytes_by_label(
    graph: TrainGraph, function: str, temporaries: Mapping[str, int], stored: frozenset[str]
) -> Mapping[str, int]:
    by_label = dict.fromkeys(_LABELS, 0)
    for tensor in graph.persistent:
        if tensor.name not in stored:
            by_label[PERSISTENT_LABELS[tensor.role]] += align(tensor.nbytes, graph.alignment_bytes)
    label = temporary_labels(graph, function)
    for name, size in temporaries.items():
        by_label[label[name]] += size
    return by_label


def temporary_labels(graph: TrainGraph, function: str) -> Mapping[str, str]:
    """Under which of the labels each tensor and scratch buffer counts while the function has it in memory."""
    label = {tensor.name: PERSISTENT_LABELS[tensor.role] for tensor in graph.persistent}
    for op in graph.functions[function]:
        for name in op.writes:
            if graph.tensors[name].is_temporary:
                label[name] = "gradients" if op.phase in _GRADIENT_PHASES else "activations"
        label.update(dict.fromkeys((scratch_name(op.name, i) for i in range(len(op.scratch_bytes))), "scratch"))
    return label
