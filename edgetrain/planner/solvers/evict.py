"""Runs a function's ops in order inside a memory limit, dropping tensors when it must and recomputing them on demand.

This is dynamic tensor rematerialisation (Kirisame et al., arXiv:2006.09616) with one advantage: the future is
known. When memory is short, the resident tensor with the least

    (seconds to bring it back)^a / (bytes^b · ops until it is needed^c)

goes. Bringing back counts every missing op on the way, and the dropped tensors that would miss it (the paper's
"evicted neighbourhood"), so that dropping spreads out and checkpoints form by themselves: about √n of them on a chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.solvers.problem import NEVER, Problem

_MAX_DEPTH = 40  # recoveries inside recoveries; deeper means memory is far too small


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What to drop first: the exponents of the module's formula, and whether storage may be used.

    `missed_weight` is how much the dropped tensors count that would miss this one. `transfer_weight` is the share of
    a transfer's time that is believed to delay the ops; None never pages.
    """

    cost_power: float
    size_power: float
    distance_power: float
    missed_weight: float = 1.0
    transfer_weight: float | None = None


class _Stuck(Exception):
    """The limit cannot be held with this policy, or the plan is already worse than one at hand."""


def run_inside(
    problem: Problem, limit_bytes: int, policy: Policy, *, give_up_s: float = float("inf")
) -> tuple[Step, ...] | None:
    """A plan that holds the limit, or None if the policy finds none with less than `give_up_s` of computing."""
    run = _Run(problem, limit_bytes, policy, give_up_s)
    try:
        for position in range(len(problem.op_names)):
            run.advance(position)
    except _Stuck:
        return None
    return tuple(run.steps)


class _Run:
    """Memory while a function runs. `resident`, `stored` and `pins` say where tensors are and which must stay.

    `demand[t]` counts the reasons to bring a missing `t` back: one for a next use, and one for each missing output,
    itself in demand, that is made from `t`.
    """

    def __init__(self, problem: Problem, limit_bytes: int, policy: Policy, give_up_s: float) -> None:
        count = len(problem.tensor_names)
        self.problem = problem
        self.limit_bytes = limit_bytes
        self.policy = policy
        self.give_up_s = give_up_s
        self.pages = policy.transfer_weight is not None and problem.transfers is not None
        # What may be paged is charged in whole pages from the start, paged or not: the limit then holds either way.
        worthwhile = (
            problem.transfers.is_worthwhile if problem.transfers is not None and self.pages else (False,) * count
        )
        self.pageable = [worthwhile[tensor] or problem.is_stored(tensor) for tensor in range(count)]
        self.footprint = [
            paged if pageable else plain
            for plain, paged, pageable in zip(problem.plain_bytes, problem.paged_bytes, self.pageable, strict=True)
        ]
        self.steps: list[Step] = []
        self.seconds = 0.0
        self.computes_left = 20 * len(problem.op_names) + 1000
        self.position = 0
        self.depth = 0
        self.live_bytes = 0
        self.resident: dict[int, None] = {}  # in order of arrival: a set would iterate in no fixed order
        self.stored = {tensor for tensor in range(count) if problem.is_stored(tensor)}
        self.missed = [False] * count  # was made, is gone, and is in demand
        self.pins = [0] * count
        self.pending = [0] * count  # ops of the current recovery that still read it
        self.use_index = [0] * count
        self.demand = [1 if uses else 0 for uses in problem.uses]
        self.recover_s = _Cache(count)
        self.missed_s = _Cache(count)

    # -- moving on ---------------------------------------------------------------------------------------------

    def advance(self, position: int) -> None:
        """Runs the op at `position` for the first time."""
        self.position = position
        self._compute(position)

    def _compute(self, op: int) -> None:
        problem = self.problem
        reads, writes = problem.reads[op], problem.writes[op]
        first_time = op == self.position
        self._hold(reads)
        fresh = [t for t in writes if t not in self.resident]
        for tensor in writes:  # an output that is still here is rewritten where it lies
            self.pins[tensor] += 1
        self._reserve(sum(self.footprint[t] for t in fresh) + problem.scratch_bytes[op])
        self.steps.append(Compute(problem.op_names[op]))
        self._charge(problem.seconds[op])
        self.stored.difference_update(problem.dirties[op])  # what storage has of them is out of date
        for tensor in fresh:
            self._arrive(tensor)
        for tensor in reads:
            self.pins[tensor] -= 1
            if first_time:
                self._pass_use(tensor)
            else:
                self.pending[tensor] -= 1
            self._release(tensor)
        for tensor in writes:
            self.pins[tensor] -= 1
            self._release(tensor)

    def _charge(self, seconds: float) -> None:
        self.seconds += seconds
        self.computes_left -= 1
        if self.seconds >= self.give_up_s or self.computes_left < 0:
            raise _Stuck

    def _pass_use(self, tensor: int) -> None:
        self.use_index[tensor] += 1
        if self.use_index[tensor] == len(self.problem.uses[tensor]):
            self.demand[tensor] -= 1

    def _next_use(self, tensor: int) -> int:
        uses, index = self.problem.uses[tensor], self.use_index[tensor]
        return uses[index] if index < len(uses) else NEVER

    # -- bringing back -----------------------------------------------------------------------------------------

    def _hold(self, tensors: tuple[int, ...]) -> None:
        """Brings the tensors into memory, each pinned once."""
        for tensor in tensors:
            self.pins[tensor] += 1
        missing = [t for t in tensors if t not in self.resident]
        if missing:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise _Stuck
            self._recover(missing)
            self.depth -= 1

    def _recover(self, missing: list[int]) -> None:
        wanted = self._missing_ops(missing)
        for op in wanted:
            for tensor in self.problem.reads[op]:
                self.pending[tensor] += 1
        for op in sorted(wanted):
            if any(tensor not in self.resident for tensor in wanted[op]):
                self._compute(op)
                continue
            for tensor in self.problem.reads[op]:  # a recovery further in has made these outputs already
                self.pending[tensor] -= 1
                self._release(tensor)
        for tensor in missing:
            if tensor not in self.resident:
                self._page_in(tensor)

    def _missing_ops(self, missing: list[int]) -> dict[int, list[int]]:
        """The ops to run to bring the tensors back, each with the outputs it is run for."""
        wanted: dict[int, list[int]] = {}
        stack, seen = list(missing), set(missing)
        while stack:
            tensor = stack.pop()
            if tensor in self.stored:
                continue
            op = self.problem.producer[tensor]
            wanted.setdefault(op, []).append(tensor)
            for source in self.problem.reads[op]:
                if source not in self.resident and source not in seen:
                    seen.add(source)
                    stack.append(source)
        return wanted

    def _page_in(self, tensor: int) -> None:
        self._reserve(self.footprint[tensor])
        self.steps.append(PageIn(self.problem.tensor_names[tensor]))
        self._arrive(tensor)

    # -- letting go --------------------------------------------------------------------------------------------

    def _release(self, tensor: int) -> None:
        """Frees a tensor that nothing will ask for."""
        if not (self.demand[tensor] or self.pins[tensor] or self.pending[tensor]) and tensor in self.resident:
            if self.problem.is_stored(tensor):
                self._save(tensor)
            self._leave(tensor)

    def _reserve(self, nbytes: int) -> None:
        while self.live_bytes + nbytes > self.limit_bytes:
            victim = self._victim()
            if victim is None:
                raise _Stuck
            self._evict(victim)

    def _evict(self, tensor: int) -> None:
        _, page = self._way_back(tensor)
        if page:
            self._save(tensor)
        self._leave(tensor)

    def _save(self, tensor: int) -> None:
        if tensor not in self.stored:
            self.steps.append(PageOut(self.problem.tensor_names[tensor]))
            self.stored.add(tensor)

    def _victim(self) -> int | None:
        policy, footprint, pins = self.policy, self.footprint, self.pins
        best, best_score = None, float("inf")
        for tensor in self.resident:
            if pins[tensor] or not footprint[tensor]:
                continue
            seconds, _ = self._way_back(tensor)
            if seconds == float("inf"):
                continue
            distance = 1 if self.pending[tensor] else max(1, self._needed_at(tensor) - self.position)
            score = seconds**policy.cost_power / (
                footprint[tensor] ** policy.size_power * distance**policy.distance_power
            )
            if score < best_score:
                best, best_score = tensor, score
        return best

    def _way_back(self, tensor: int) -> tuple[float, bool]:
        """Seconds to bring the tensor back if it goes now, and whether through storage."""
        dropped = float("inf")
        if self._needed_at(tensor) <= self.problem.recompute_until[tensor]:
            dropped = self._recover_seconds(tensor)
            if self.policy.missed_weight:
                dropped += self.policy.missed_weight * self._missed_seconds(tensor)
        if self.pageable[tensor]:
            paged = self._transfer_seconds(tensor)
            if paged < dropped:
                return paged, True
        return dropped, False

    def _transfer_seconds(self, tensor: int) -> float:
        transfers, weight = self.problem.transfers, self.policy.transfer_weight
        assert transfers is not None
        seconds = transfers.read_seconds[tensor]
        if tensor not in self.stored:
            seconds += transfers.write_seconds[tensor]
        return seconds if weight is None else weight * seconds  # None: only stored tensors are paged, for they must

    # -- where tensors are -------------------------------------------------------------------------------------

    def _arrive(self, tensor: int) -> None:
        self.resident[tensor] = None
        self.live_bytes += self.footprint[tensor]
        self._after_move(tensor)

    def _leave(self, tensor: int) -> None:
        del self.resident[tensor]
        self.live_bytes -= self.footprint[tensor]
        self.steps.append(Free(self.problem.tensor_names[tensor]))
        self._after_move(tensor)

    def _after_move(self, tensor: int) -> None:
        self._forget_below(tensor)
        self._forget_above(tensor)
        changed = [tensor]
        while changed:  # what is missed decides what its sources are wanted for, and so on up
            missing = changed.pop()
            is_missed = bool(self.demand[missing]) and missing not in self.resident and missing not in self.stored
            if is_missed == self.missed[missing]:
                continue
            self.missed[missing] = is_missed
            self._forget_above(missing)
            for source in self.problem.reads[self.problem.producer[missing]]:
                self.demand[source] += 1 if is_missed else -1
                if source not in self.resident:
                    changed.append(source)

    def _forget_below(self, moved: int) -> None:
        """Drops the cached `_recover_seconds` of every tensor whose way back leads over `moved`."""
        cache, problem = self.recover_s, self.problem
        cache.value[moved] = None
        stack = [moved]
        while stack:
            for op in problem.uses[stack.pop()]:
                if op > self.position:
                    break
                for tensor in problem.writes[op]:
                    cache.value[tensor] = None
                    if cache.is_on_a_path[tensor] and tensor not in self.resident:
                        cache.is_on_a_path[tensor] = False
                        stack.append(tensor)

    def _forget_above(self, moved: int) -> None:
        """Drops the cached `_missed_seconds` of every tensor that `moved` is made from."""
        cache, problem = self.missed_s, self.problem
        cache.value[moved] = None
        stack = [moved]
        while stack:
            made = stack.pop()
            if problem.is_stored(made):
                continue
            for tensor in problem.reads[problem.producer[made]]:
                cache.value[tensor] = None
                if cache.is_on_a_path[tensor] and tensor not in self.resident:
                    cache.is_on_a_path[tensor] = False
                    stack.append(tensor)

    def _recover_seconds(self, tensor: int) -> float:
        """Seconds of its producer and of every missing op before that."""
        cache, problem = self.recover_s, self.problem
        known = cache.value[tensor]
        if known is not None:
            return known
        total, stack, seen = problem.seconds[problem.producer[tensor]], [tensor], {problem.producer[tensor]}
        while stack:
            for source in problem.reads[problem.producer[stack.pop()]]:
                op = problem.producer[source]
                if source in self.resident:
                    continue
                cache.is_on_a_path[source] = True
                if source in self.stored:
                    total += self._transfer_seconds(source)
                elif op not in seen:
                    seen.add(op)
                    total += problem.seconds[op]
                    stack.append(source)
        cache.value[tensor] = total
        return total

    def _missed_seconds(self, tensor: int) -> float:
        """Seconds of the dropped ops that will want this tensor when they run again."""
        cache, problem = self.missed_s, self.problem
        known = cache.value[tensor]
        if known is not None:
            return known
        total, stack, seen = 0.0, [tensor], {tensor}
        while stack:
            for op in problem.uses[stack.pop()]:
                if op > self.position:
                    break
                for output in problem.writes[op]:
                    if self.missed[output] and output not in seen:
                        seen.add(output)
                        cache.is_on_a_path[output] = True
                        total += problem.seconds[op]
                        stack.append(output)
        cache.value[tensor] = total
        return total

    def _needed_at(self, tensor: int) -> int:
        """The op that reads it next; now, for one that is only kept to bring others back."""
        next_use = self._next_use(tensor)
        return self.position if next_use == NEVER else next_use


class _Cache:
    """Values by tensor, with a mark on the missing tensors that some cached value counted.

    A change can stop spreading at an unmarked tensor: no cached value leads over it.
    """

    def __init__(self, count: int) -> None:
        self.value: list[float | None] = [None] * count
        self.is_on_a_path = [False] * count
