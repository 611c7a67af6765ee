"""How long trials of schedules before a run may take, from the modelled length of the run. No TVM.

The same graph, rates and number of steps give the same time: nothing is measured here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain.compiler.search.trials import TrialTerms
from edgetrain.cost.analytic import call_seconds
from edgetrain.graph.ir import STEP, TrainGraph
from edgetrain.targets.device import Rates
from edgetrain_tuner.cache.entry import Workload
from edgetrain_tuner.transfer import identity

SHARE = 0.1  # of the run; what is won is kept for the next ones
# At least what it takes to start measuring and to try the heaviest kernels: short runs use what a team found, too.
LEAST_S = 5.0
MOST_S = 20.0


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Modelled seconds of a step, and of each kernel in it by its symbol; symbols of the same kernel share theirs."""

    step_s: float
    kernel_s: Mapping[str, float]

    @staticmethod
    def of(graph: TrainGraph, workloads: Mapping[str, Workload], rates: Rates) -> StepTimes:
        """From the kernels themselves, which are known before they are scheduled.

        What a step does not call (evaluation's own kernels, updates from summed gradients) counts as called once: too
        often, rather than never.
        """
        calls = Counter(op.kernel for op in graph.functions[STEP])
        a_call_s = {symbol: call_seconds(rates, one.operations, one.bytes) for symbol, one in workloads.items()}
        alike: dict[tuple[object, ...], float] = {}
        for symbol, workload in workloads.items():
            took_s = max(1, calls[symbol]) * a_call_s[symbol]
            alike[identity(workload)] = alike.get(identity(workload), 0.0) + took_s
        return StepTimes(
            step_s=sum(count * a_call_s[symbol] for symbol, count in calls.items()),
            kernel_s={symbol: alike[identity(workload)] for symbol, workload in workloads.items()},
        )


def allowed_seconds(terms: TrialTerms, times: StepTimes) -> float | None:
    """How long trials may take: what the user said, else a share of the run ahead; None for as long as it takes."""
    if terms.trials.seconds is not None or terms.batches is None:
        return terms.trials.seconds
    return min(MOST_S, max(LEAST_S, SHARE * terms.batches * times.step_s))
