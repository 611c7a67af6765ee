"""What a plan is: steps, budgets, placements; and `replay`, which believes no solver.

A plan has a list of steps for each function of a `TrainGraph`. `Compute` runs an op (again, where a tensor it
writes was dropped and is needed later), `Free` ends a tensor's stay in memory, `PageOut` copies a tensor to storage
(it stays in memory until its `Free`), `PageIn` brings it back. A persistent tensor that is paged is *stored*:
it begins in storage, is in memory for its uses, and its last value is in storage when the function ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from edgetrain.cost.analytic import OpCost, read_cost, write_cost
from edgetrain.errors import InternalError
from edgetrain.graph.ir import ALIGNMENT_BYTES, Op, TrainGraph
from edgetrain.graph.persistent import align
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, Joules, Seconds

PAGE_BYTES = 4096  # what O_DIRECT asks of addresses and lengths


@dataclass(frozen=True, slots=True)
class Compute:
    op: str


@dataclass(frozen=True, slots=True)
class Free:
    tensor: str


@dataclass(frozen=True, slots=True)
class PageOut:
    tensor: str


@dataclass(frozen=True, slots=True)
class PageIn:
    tensor: str


Step = Compute | Free | PageOut | PageIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The user's limits. `None` means no limit. All but memory are per training step."""

    memory_bytes: Bytes | None = None
    energy_j: Joules | None = None
    deadline_s: Seconds | None = None
    written_bytes: Bytes | None = None  # to storage, in one training step


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramMemory:
    """What a process needs beside the arena to train: code, stacks, buffers. A budget is for all of it.

    Nothing on a device that runs its code from flash.
    """

    resident_bytes: int = 0
    paging_bytes: int = 0  # more where the plan pages: a thread and its buffer

    def of(self, *, paged: bool) -> int:
        return self.resident_bytes + (self.paging_bytes if paged else 0)


NO_PROGRAM = ProgramMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One stay of a tensor (or of an op's scratch) in the arena: from step `start` to step `end`, both included."""

    tensor: str  # scratch of op `o` number i is named `o#i`
    start: int
    end: int
    offset: int  # bytes from the arena's start
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class FunctionPlan:
    """The steps of one function with an offset for every stay."""

    function: str
    steps: tuple[Step, ...]
    placements: tuple[Placement, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the program executes. `peak_bytes` is the size of the arena: persistent part, then temporaries.

    Tensors in `stored` are persistent but have no offset: they live in storage and come into the temporary part for
    their uses. `gap` is how much cheaper `step` could be at most, as a share of its cost and as far as is proven: that
    every op runs once, and what the solver shows; None for a plan that no planner made.
    """

    solver: str
    budget: Budget
    functions: Mapping[str, FunctionPlan]
    persistent_offsets: Mapping[str, int]
    persistent_bytes: int
    peak_bytes: int  # arena size with fragmentation: what the run may use, and what is measured
    lower_bound_bytes: int  # replayed peak: what a perfect packer would need
    seconds: float  # modelled time of one `step`
    joules: float  # modelled energy of one `step`
    beside_bytes: int = 0  # what the process needs beside the arena; the budget holds both
    written_bytes: int = 0  # to storage, in one `step`
    saved_bytes: int = 0  # parameters and state, stored ones too: the size of a checkpoint
    stored: tuple[str, ...] = ()
    gap: float | None = None
    keep_all_bytes: int | None = None  # arena size if nothing were recomputed or paged, for comparison
    keep_all_seconds: float | None = None  # modelled time of `step` if nothing were recomputed or paged

    @property
    def needed_bytes(self) -> int:
        """The smallest budget that this plan keeps."""
        return self.peak_bytes + self.beside_bytes


def footprint_bytes(nbytes: int, *, paged: bool, alignment_bytes: int = ALIGNMENT_BYTES) -> int:
    """What a tensor occupies in the arena. Storage is read and written in whole pages (O_DIRECT)."""
    return align(nbytes, PAGE_BYTES if paged else alignment_bytes)


def paged_tensors(steps: Iterable[Step]) -> frozenset[str]:
    """The tensors that steps move to storage or back; every stay of theirs is page-aligned."""
    return frozenset(step.tensor for step in steps if isinstance(step, PageOut | PageIn))


def scratch_name(op: str, index: int) -> str:
    """The name under which scratch buffer number `index` of an op is placed."""
    return f"{op}#{index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A tensor's (or a scratch buffer's) time in memory: from step `start` to step `end`, both included."""

    tensor: str
    start: int
    end: int
    nbytes: int  # footprint: aligned, so that live stays add up to what a perfect packer needs
    paged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What some steps do, computed again from them. Of persistent tensors only stored ones are counted."""

    temporary_peak_bytes: int
    peak_step: int
    memory_timeline: tuple[int, ...]  # bytes in memory during each step, scratch included; after the step for a `Free`
    stays: tuple[Stay, ...]  # by start; tensors and scratch
    seconds: float
    joules: float
    recomputed: Mapping[str, int]  # op -> how many times it ran beyond the first
    paged_out_bytes: int
    paged_in_bytes: int


def replay(
    graph: TrainGraph,
    function: str,
    steps: Sequence[Step],
    costs: Mapping[str, OpCost],
    storage: Storage | None = None,
) -> Replay:
    """Runs the bookkeeping of some steps, and nothing else, and returns what it found.

    Time has two lanes: computing, and one transfer at a time beside it. A transfer starts when it is issued and the
    lane is free. `Compute` waits for the page-ins it reads, `Free` for the transfers of its tensor; nothing else
    waits. The function ends when both lanes do. With storage that does not overlap, every transfer is waited for.

    Raises `InternalError` naming step and tensor unless every op of the function runs, every run of an op reads
    exactly the values it reads in the function's own order, ops that write persistent tensors run once, every `Free`,
    `PageOut` and `PageIn` names a tensor where it says it is, and the last value of every stored tensor is written.
    """
    walk = _Walk(graph=graph, function=function, costs=costs, storage=storage, paged=paged_tensors(steps))
    for step in steps:
        walk.take(step)
    return walk.finish()


def persistent_versions(graph: TrainGraph, function: str) -> Mapping[str, Mapping[str, int]]:
    """For each op, how often each persistent tensor it touches was written before it in the function's own order.

    This is what "the same value" means for tensors that are updated in place: an op may run whenever the counts
    are these.
    """
    written: Counter[str] = Counter()
    versions: dict[str, Mapping[str, int]] = {}
    for op in graph.functions[function]:
        touched = [name for name in (*op.reads, *op.writes) if not graph.tensors[name].is_temporary]
        versions[op.name] = {name: written[name] for name in touched}
        written.update(name for name in dict.fromkeys(op.writes) if not graph.tensors[name].is_temporary)
    return versions


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The state of a replay between two steps."""

    graph: TrainGraph
    function: str
    costs: Mapping[str, OpCost]
    storage: Storage | None
    paged: frozenset[str]
    stored: frozenset[str] = field(init=False)
    versions: Mapping[str, Mapping[str, int]] = field(init=False)
    ops: Mapping[str, Op] = field(init=False)
    runs: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)  # persistent tensor -> writes so far
    in_memory: dict[str, int] = field(default_factory=dict)  # tensor -> step its stay began
    in_storage: set[str] = field(default_factory=set)
    read_done_s: dict[str, float] = field(default_factory=dict)
    transfer_done_s: dict[str, float] = field(default_factory=dict)  # the last transfer of a tensor, either way
    live_bytes: int = 0
    timeline: list[int] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    compute_s: float = 0.0
    transfer_s: float = 0.0
    joules: float = 0.0
    out_bytes: int = 0
    in_bytes: int = 0

    def __post_init__(self) -> None:
        self.versions = persistent_versions(self.graph, self.function)
        self.ops = {op.name: op for op in self.graph.functions[self.function]}
        self.stored = frozenset(tensor for tensor in self.paged if not self._is_temporary(tensor))
        self.in_storage.update(self.stored)

    def take(self, step: Step) -> None:
        extra_bytes = 0
        match step:
            case Compute(op):
                extra_bytes = self._compute(op)
            case Free(tensor):
                self._free(tensor)
            case PageOut(tensor):
                self._page_out(tensor)
            case PageIn(tensor):
                self._page_in(tensor)
        self.timeline.append(self.live_bytes + extra_bytes)

    def _compute(self, name: str) -> int:
        if name not in self.ops:
            self._fail(f"computes the unknown op `{name}`")
        op = self.ops[name]
        updated = [tensor for tensor in dict.fromkeys(op.writes) if not self._is_temporary(tensor)]
        if updated and self.runs[name]:
            self._fail(f"op `{name}`, which writes the persistent `{updated[0]}`, runs a second time")
        for tensor, version in self.versions[name].items():
            if self.written[tensor] != version:
                self._fail(
                    f"op `{name}` touches `{tensor}` after {self.written[tensor]} in-place writes instead of {version}"
                )
        for tensor in dict.fromkeys((*op.reads, *(t for t in updated if t in self.stored))):
            if self._is_temporary(tensor) or tensor in self.stored:
                self._require(tensor, f"op `{name}` reads `{tensor}`")
                self.compute_s = max(self.compute_s, self.read_done_s.get(tensor, 0.0))
        for tensor in updated:
            # What is being written to storage must not change under it; and what is there is then out of date.
            self.compute_s = max(self.compute_s, self.transfer_done_s.get(tensor, 0.0))
            self.in_storage.discard(tensor)
        self.written.update(updated)
        for tensor in dict.fromkeys(op.writes):
            # One output of several may be missing alone: the others are rewritten with the bytes they hold.
            if self._is_temporary(tensor) and tensor not in self.in_memory:
                self._begin_stay(tensor)
        self.runs[name] += 1
        self.compute_s += self.costs[name].seconds
        self.joules += self.costs[name].joules
        return self._place_scratch(op)

    def _place_scratch(self, op: Op) -> int:
        now = len(self.timeline)
        scratch = [
            Stay(
                tensor=scratch_name(op.name, index),
                start=now,
                end=now,
                nbytes=footprint_bytes(nbytes, paged=False, alignment_bytes=self.graph.alignment_bytes),
                paged=False,
            )
            for index, nbytes in enumerate(op.scratch_bytes)
        ]
        self.stays += scratch
        return sum(stay.nbytes for stay in scratch)

    def _free(self, tensor: str) -> None:
        self._require(tensor, f"frees `{tensor}`")
        self.compute_s = max(self.compute_s, self.transfer_done_s.pop(tensor, 0.0))
        self._end_stay(tensor, end=len(self.timeline) - 1)

    def _page_out(self, tensor: str) -> None:
        self._require(tensor, f"pages out `{tensor}`")
        nbytes = self._footprint(tensor)
        self._transfer(tensor, write_cost(self._storage, nbytes))
        self.in_storage.add(tensor)
        self.out_bytes += nbytes

    def _page_in(self, tensor: str) -> None:
        if tensor not in self.in_storage:
            reason = "changed and not paged out since" if tensor in self.stored else "never paged out"
            self._fail(f"pages in `{tensor}`, which was {reason}")
        if tensor in self.in_memory:
            self._fail(f"pages in `{tensor}`, which is in memory already")
        self._begin_stay(tensor)
        nbytes = self._footprint(tensor)
        self._transfer(tensor, read_cost(self._storage, nbytes))
        self.read_done_s[tensor] = self.transfer_s
        self.in_bytes += nbytes

    def _transfer(self, tensor: str, cost: OpCost) -> None:
        self.transfer_s = max(self.transfer_s, self.compute_s) + cost.seconds
        self.transfer_done_s[tensor] = self.transfer_s
        if not self._storage.overlaps:
            self.compute_s = self.transfer_s
        self.joules += cost.joules

    @property
    def _storage(self) -> Storage:
        if self.storage is None:
            self._fail("pages a tensor, but there is no storage")
        return self.storage

    def _begin_stay(self, tensor: str) -> None:
        self.in_memory[tensor] = len(self.timeline)
        self.live_bytes += self._footprint(tensor)

    def _end_stay(self, tensor: str, end: int) -> None:
        start, nbytes = self.in_memory.pop(tensor), self._footprint(tensor)
        self.live_bytes -= nbytes
        self.stays.append(Stay(tensor=tensor, start=start, end=end, nbytes=nbytes, paged=tensor in self.paged))

    def _footprint(self, tensor: str) -> int:
        nbytes, alignment_bytes = self.graph.tensors[tensor].nbytes, self.graph.alignment_bytes
        return footprint_bytes(nbytes, paged=tensor in self.paged, alignment_bytes=alignment_bytes)

    def _is_temporary(self, tensor: str) -> bool:
        return self.graph.tensors[tensor].is_temporary

    def _require(self, tensor: str, action: str) -> None:
        if tensor not in self.in_memory:
            self._fail(f"{action}, which is not in memory")

    def _fail(self, problem: str) -> NoReturn:
        raise InternalError(
            f"invalid plan: {self.function}: step {len(self.timeline)} {problem}",
            why="a solver produced steps that would change the result",
            fix="report this with the dumped graph and plan; `--solver keep-all` avoids it meanwhile",
        )

    def finish(self) -> Replay:
        for name in self.ops:
            if not self.runs[name]:
                self._fail(f"ends, but op `{name}` never ran")
        for tensor in sorted(self.stored - self.in_storage):
            self._fail(f"ends, but the new value of `{tensor}` was never written to storage")
        for tensor in tuple(self.in_memory):
            self._end_stay(tensor, end=len(self.timeline) - 1)
        peak_bytes = max(self.timeline, default=0)
        return Replay(
            temporary_peak_bytes=peak_bytes,
            peak_step=self.timeline.index(peak_bytes) if self.timeline else 0,
            memory_timeline=tuple(self.timeline),
            stays=tuple(sorted(self.stays, key=lambda stay: (stay.start, stay.tensor))),
            seconds=max(self.compute_s, self.transfer_s),
            joules=self.joules,
            recomputed={name: runs - 1 for name, runs in self.runs.items() if runs > 1},
            paged_out_bytes=self.out_bytes,
            paged_in_bytes=self.in_bytes,
        )
