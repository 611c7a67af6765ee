"""The driver's text, read back by an interpreter that executes transfers as late as the C runtime ever may."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import InternalError
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph, validate
from edgetrain.planner.plan import Budget, Compute, Free, FunctionPlan, PageIn, PageOut, Placement, Plan, Step
from edgetrain.program.emit_c import ABI, emit_driver, emit_header, page_slots
from edgetrain.runtime.sources import runtime_text
from edgetrain.value_bounds import PartBounds, Region
from tests.edgetrain.program.tiny_program import STEP_PLANS, keep, page, storing_plan, tiny_graph, tiny_plan

Value = object
POISON = "poison"

_CALL = re.compile(r"EDGE_RUN\((\d+), (\w+)\(([^)]*)\)\);")
_START = re.compile(r"EDGE_TRY\(edge_page_start_(read|write)\((\d+), a \+ (\d+)\)\);")
_WAIT = re.compile(r"EDGE_TRY\(edge_page_wait\((\d+)\)\);")
_DRAIN = "EDGE_TRY(edge_page_drain());"


@dataclass
class Interpreter:
    """Runs one driver function on values that say how they were computed.

    A transfer has no effect until somebody waits for it, and a page-in's destination holds poison meanwhile: the
    worst that a real pager may do.
    """

    ops: tuple[Op, ...]
    memory: dict[int, Value]
    storage: dict[int, Value] = field(default_factory=dict)
    pending: list[tuple[str, int, int]] = field(default_factory=list)
    inputs_seen: list[tuple[str, tuple[Value, ...]]] = field(default_factory=list)

    def run(self, driver: str, function: str) -> None:
        body = driver.split(f"int32_t edge_{function}(void) {{")[1].split("\n}")[0]
        for line in (re.sub(r"/\*.*?\*/", "", raw).strip() for raw in body.splitlines()):
            if call := _CALL.fullmatch(line):
                self._compute(
                    self.ops[int(call[1])], call[2], [int(p.removeprefix("a + ")) for p in call[3].split(", ")]
                )
            elif start := _START.fullmatch(line):
                self._start(start[1], int(start[2]), int(start[3]))
            elif wait := _WAIT.fullmatch(line):
                self._finish(int(wait[1]))
            elif line == _DRAIN:
                self._finish(None)
            else:
                assert not line or "edge_arena" in line or "return" in line, f"unexpected line: {line}"
        assert not self.pending, "the function returns while a transfer is under way"

    def _compute(self, op: Op, kernel: str, pointers: list[int]) -> None:
        assert kernel == op.kernel
        assert len(pointers) == len(op.reads) + len(op.writes) + len(op.scratch_bytes)
        read = tuple(self.memory.get(p, POISON) for p in pointers[: len(op.reads)])
        self.inputs_seen.append((op.name, read))
        for pointer in pointers[len(op.reads) + len(op.writes) :]:
            self.memory[pointer] = POISON
        for number, pointer in enumerate(pointers[len(op.reads) : len(op.reads) + len(op.writes)]):
            self.memory[pointer] = (op.name, number)

    def _start(self, direction: str, slot: int, pointer: int) -> None:
        self.pending.append((direction, slot, pointer))
        if direction == "read":
            self.memory[pointer] = POISON

    def _finish(self, slot: int | None) -> None:
        while self.pending and (slot is None or any(s == slot for _, s, _ in self.pending)):
            direction, number, pointer = self.pending.pop(0)
            if direction == "write":
                self.storage[number] = self.memory.get(pointer, POISON)
            else:
                self.memory[pointer] = self.storage[number]


@dataclass
class Walk:
    """Makes a random valid function_plan, with a first-fit allocator that knows nothing of the future."""

    graph: TrainGraph
    choose: random.Random
    steps: list[Step] = field(default_factory=list)
    live: dict[str, tuple[int, int]] = field(default_factory=dict)  # tensor -> (start, offset)
    stored: set[str] = field(default_factory=set)
    placements: list[Placement] = field(default_factory=list)

    def function_plan(self) -> FunctionPlan:
        for op in self.graph.functions["step"]:
            self.compute(op)
            self.evict()
        for name in tuple(self.live):
            self.end(name, len(self.steps) - 1)
        return FunctionPlan(function="step", steps=tuple(self.steps), placements=tuple(self.placements))

    def compute(self, op: Op) -> None:
        for name in op.reads:
            self.bring(name, pinned=frozenset(op.reads))
        now = len(self.steps)
        for name in op.writes:
            if self.graph.tensors[name].is_temporary and name not in self.live:
                self.begin(name)
        for index, nbytes in enumerate(op.scratch_bytes):
            offset = self.find(nbytes)
            self.live[f"{op.name}#{index}"] = (now, offset)
        self.steps.append(Compute(op.name))
        for index in range(len(op.scratch_bytes)):
            self.end(f"{op.name}#{index}", now)

    def bring(self, name: str, pinned: frozenset[str]) -> None:
        if not self.graph.tensors[name].is_temporary or name in self.live:
            return
        if name in self.stored and self.choose.random() < 0.7:
            self.begin(name)
            self.steps.append(PageIn(name))
        else:
            self.compute(next(op for op in self.graph.functions["step"] if name in op.writes))

    def evict(self) -> None:
        """Lets some go; brings some back that nobody asks for yet, and writes some again that storage has already."""
        for name in sorted(self.stored - set(self.live)):
            if self.choose.random() < 0.2:
                self.begin(name)
                self.steps.append(PageIn(name))
        for name in tuple(self.live):
            if self.choose.random() < (0.2 if name in self.stored else 0.5):
                self.steps.append(PageOut(name))
                self.stored.add(name)
            if self.choose.random() < 0.4:
                self.end(name, len(self.steps) - 1)
                self.steps.append(Free(name))

    def begin(self, name: str) -> None:
        self.live[name] = (len(self.steps), self.find(self.graph.tensors[name].nbytes))

    def end(self, name: str, last_step: int) -> None:
        start, offset = self.live.pop(name)
        nbytes = self.nbytes(name)
        self.placements.append(Placement(tensor=name, start=start, end=last_step, offset=offset, nbytes=nbytes))

    def nbytes(self, name: str) -> int:
        return self.graph.tensors[name].nbytes if name in self.graph.tensors else 64

    def find(self, nbytes: int) -> int:
        busy = sorted((offset, offset + self.nbytes(name)) for name, (_, offset) in self.live.items())
        offset = 1024
        for begin, end in busy:
            if begin - offset >= nbytes:
                break
            offset = max(offset, end)
        return offset


def random_graph(choose: random.Random) -> TrainGraph:
    """A DAG of up to a dozen ops over one parameter; any op may read any earlier tensors."""
    tensors = [Tensor(name="w", shape=(16,), dtype="float32", role=Role.PARAMETER)]
    ops: list[Op] = []
    for number in range(choose.randint(1, 12)):
        reads = tuple(choose.choice(tensors).name for _ in range(choose.randint(1, 3)))
        writes = tuple(f"t{number}_{i}" for i in range(choose.randint(1, 2)))
        scratch = (64,) * choose.randint(0, 1)
        kernel = f"k{len(reads)}{len(writes)}{len(scratch)}"
        ops.append(
            Op(
                name=f"op{number}",
                kernel=kernel,
                reads=reads,
                writes=writes,
                scratch_bytes=scratch,
                phase=Phase.FORWARD,
            )
        )
        tensors += [Tensor(name=name, shape=(16,), dtype="float32", role=Role.TEMPORARY) for name in writes]
    graph = TrainGraph(name="random", tensors={t.name: t for t in tensors}, functions={"step": tuple(ops)})
    validate(graph)
    return graph


def plan_of(function_plan: FunctionPlan) -> Plan:
    return Plan(
        solver="random",
        budget=Budget(),
        functions={"step": function_plan},
        persistent_offsets={"w": 0},
        persistent_bytes=64,
        peak_bytes=1 << 20,
        lower_bound_bytes=0,
        seconds=0.0,
        joules=0.0,
    )


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_kernel_reads_what_it_would_read_if_nothing_were_dropped_or_paged(seed: int) -> None:
    choose = random.Random(seed)
    graph = random_graph(choose)
    function_plan = Walk(graph=graph, choose=choose).function_plan()
    ops = graph.functions["step"]
    producer = {name: (op.name, i) for op in ops for i, name in enumerate(op.writes)} | {"w": "w"}

    machine = Interpreter(ops=ops, memory={0: "w"})
    machine.run(emit_driver(graph, plan_of(function_plan)), "step")

    by_name = {op.name: op for op in ops}
    for name, seen in machine.inputs_seen:
        assert seen == tuple(producer[r] for r in by_name[name].reads), name
    assert {name for name, _ in machine.inputs_seen} == set(by_name)


@pytest.mark.parametrize("name", STEP_PLANS)
def test_the_same_plan_gives_the_same_text(name: str) -> None:
    assert emit_driver(tiny_graph(), tiny_plan(STEP_PLANS[name])) == emit_driver(
        tiny_graph(), tiny_plan(STEP_PLANS[name])
    )


def test_the_driver_of_a_paged_plan_reads_like_this() -> None:
    driver = emit_driver(tiny_graph(), tiny_plan(page()))
    assert "#define EDGE_ARENA_BYTES 45056u" in driver
    assert "    {0u, 6000u}, /* 0: h */" in driver
    assert driver.split("edge_step(void) {\n")[1].split("}")[0] == (
        "  uint8_t* const a = edge_arena;\n"
        "  if (a == NULL) return edge_fail(EDGE_ERROR_STATE);\n"
        "  /* 0 multiply (/hidden/Mul): x, w -> h */\n"
        "  EDGE_RUN(0, tiny_multiply(a + 12096, a + 0, a + 20480));\n"
        "  /* page out h */\n"
        "  EDGE_TRY(edge_page_start_write(0, a + 20480));\n"
        "  /* 1 square: h -> square */\n"
        "  EDGE_RUN(1, tiny_square(a + 20480, a + 28672, a + 36864));\n"
        "  EDGE_TRY(edge_page_wait(0)); /* h */\n"
        "  /* 2 sum: square -> loss */\n"
        "  EDGE_RUN(2, tiny_sum(a + 28672, a + 18112));\n"
        "  /* page in h */\n"
        "  EDGE_TRY(edge_page_start_read(0, a + 36864));\n"
        "  EDGE_TRY(edge_page_wait(0)); /* h */\n"
        "  /* 3 grad: h, x -> gradient */\n"
        "  EDGE_RUN(3, tiny_gradient(a + 36864, a + 12096, a + 20480));\n"
        "  /* 4 update: gradient, rate, w -> w */\n"
        "  EDGE_RUN(4, tiny_update(a + 20480, a + 12032, a + 0, a + 0));\n"
        "  return EDGE_OK;\n"
    )


def driver_with(ids: Tensor) -> str:
    """Of the tiny graph whose step reads `ids` as well."""
    graph, plan = tiny_graph(), tiny_plan(keep())
    first, *others = graph.functions["step"]
    functions = {
        **graph.functions,
        "step": (replace(first, kernel="tiny_look_up", reads=(*first.reads, ids.name)), *others),
    }
    return emit_driver(
        TrainGraph(name="ids", tensors={**graph.tensors, ids.name: ids}, functions=functions),
        replace(plan, persistent_bytes=18240, persistent_offsets={**plan.persistent_offsets, ids.name: 18176}),
    )


def test_a_function_begins_with_a_look_at_the_inputs_that_have_bounds() -> None:
    ids = Tensor(name='"ids"', shape=(2, 3), dtype="int32", role=Role.INPUT, bounds=(-6, 5))
    driver = driver_with(ids)
    step, evaluate = (
        driver.split(f"edge_{function}(void) {{\n")[1].split("\n}")[0] for function in tiny_graph().functions
    )
    check = 'EDGE_TRY(edge_check_int32(a + 18176, 6, INT64_C(-6), INT64_C(5), "\\042ids\\042"));'
    assert step.index("EDGE_ERROR_STATE") < step.index(check) < step.index("EDGE_RUN")
    assert "edge_check" not in evaluate


def test_regions_of_an_input_are_looked_at_one_by_one() -> None:
    column = Region(lowest=-6.5, highest=5.5, start=1, length=1, step=2, count=2)
    last = Region(lowest=0.0, highest=float(np.float32(0.1)), start=4, length=2, step=2, count=1)
    table = Tensor(
        name="table", shape=(2, 6), dtype="float32", role=Role.INPUT, bounds=PartBounds(regions=(column, last))
    )
    driver = driver_with(table)
    call = "EDGE_TRY(edge_check_region_float32(a + 18176, &(const edge_region)"
    assert f'{call}{{2, 6, 1, 2, 2, 1}}, -0x1.a000000000000p+2f, 0x1.6000000000000p+2f, "table"));' in driver
    assert f'{call}{{2, 6, 4, 1, 2, 2}}, 0x0.0p+0f, 0x1.99999a0000000p-4f, "table"));' in driver


def test_the_abi_number_is_the_one_in_the_header() -> None:
    assert f"#define EDGE_ABI {ABI}\n" in runtime_text("edgetrain.h")


def test_slots_are_page_aligned_and_do_not_overlap() -> None:
    function_plan = keep()
    steps = (*function_plan.steps[:3], PageOut("square"), PageOut("h"), *function_plan.steps[3:])
    slots = page_slots(tiny_plan(replace(function_plan, steps=steps)), tiny_graph())
    assert [(s.tensor, s.number, s.file_offset, s.nbytes) for s in slots.values()] == [
        ("square", 0, 0, 6000),
        ("h", 1, 8192, 6000),
    ]


def test_a_transfer_that_nobody_waits_for_is_drained_at_the_end() -> None:
    function_plan = keep()
    placements = (
        *(p for p in function_plan.placements if p.tensor != "h"),
        replace(function_plan.placements[0], end=7),
    )
    steps = tuple(PageOut("h") if step == Free("h") else step for step in function_plan.steps)
    driver = emit_driver(tiny_graph(), tiny_plan(replace(function_plan, steps=steps, placements=placements)))
    assert driver.count("edge_page_drain") == 1


def test_a_tensor_without_a_place_is_rejected() -> None:
    function_plan = keep()
    with pytest.raises(InternalError, match="0 placements of `h` cover step 4"):
        emit_driver(
            tiny_graph(),
            tiny_plan(
                replace(
                    function_plan,
                    placements=(replace(function_plan.placements[0], end=2), *function_plan.placements[1:]),
                )
            ),
        )


def test_paging_in_what_was_never_paged_out_is_rejected() -> None:
    steps = tuple(PageIn("h") if step == PageOut("h") else step for step in page().steps)
    with pytest.raises(InternalError, match="pages in `h`, which was not paged out"):
        emit_driver(tiny_graph(), tiny_plan(replace(page(), steps=steps)))


def test_paging_a_persistent_tensor_is_rejected() -> None:
    steps = (*keep().steps, PageOut("w"))
    with pytest.raises(InternalError, match="pages `w`, which is persistent"):
        emit_driver(tiny_graph(), tiny_plan(replace(keep(), steps=steps)))


def test_a_kernel_called_with_two_arities_is_rejected() -> None:
    graph = tiny_graph()
    ops = graph.functions["evaluate"]
    changed = (replace(ops[0], kernel="tiny_sum"), *ops[1:])
    with pytest.raises(InternalError, match="`tiny_sum` is called with 2 and with 3 pointers"):
        emit_driver(replace(graph, functions={**graph.functions, "evaluate": changed}), tiny_plan(keep()))


@pytest.mark.parametrize("function", ["open", "page_wait", "two words", ""])
def test_a_function_name_that_c_cannot_take_is_rejected(function: str) -> None:
    graph = tiny_graph()
    plan = tiny_plan(keep())
    renamed = replace(graph, functions={function: graph.functions["step"]})
    with pytest.raises(InternalError, match="cannot become"):
        emit_driver(renamed, replace(plan, functions={function: replace(keep(), function=function)}))


@pytest.mark.parametrize("name", ["a*/ int evil; /*", "line\nbreak", "/*", "**//**//"])
def test_no_name_can_end_or_nest_a_comment(name: str) -> None:
    graph = tiny_graph()
    ops = tuple(replace(op, source=name) for op in graph.functions["step"])
    driver = emit_driver(replace(graph, functions={**graph.functions, "step": ops}, name=name), tiny_plan(keep()))
    for line in driver.splitlines():
        outside = re.sub(r"/\*(?:(?!\*/|/\*).)*\*/", "", line)
        assert "/*" not in outside, line
        assert "*/" not in outside, line
        assert "evil" not in outside, line


def test_the_model_header_names_every_persistent_tensor_once() -> None:
    graph = tiny_graph()
    twin = replace(graph.tensors["loss"], name="Loss")
    plan = tiny_plan(keep())
    offsets = {**plan.persistent_offsets, "Loss": 18116}
    header = emit_header(
        replace(graph, tensors={**graph.tensors, "Loss": twin}), replace(plan, persistent_offsets=offsets)
    )
    defined = re.findall(r"#define EDGE_OFFSET_(\w+) (\d+)u", header)
    assert defined == [
        ("W", "0"),
        ("MOMENTUM", "6016"),
        ("RATE", "12032"),
        ("X", "12096"),
        ("LOSS", "18112"),
        ("LOSS_2", "18116"),
    ]


def test_stored_tensors_have_slots_instead_of_offsets_in_the_header() -> None:
    header = emit_header(tiny_graph(), storing_plan())
    assert re.findall(r"#define EDGE_SLOT_(\w+) (\d+)u", header) == [("W", "1"), ("MOMENTUM", "0")]
    assert not re.findall(r"EDGE_OFFSET_(?:W|MOMENTUM)\b", header)
    assert "#define EDGE_STORED_TENSORS 2" in header


def test_a_stored_parameter_is_read_before_its_use_and_written_after_its_update() -> None:
    lines = emit_driver(tiny_graph(), storing_plan()).split("int32_t edge_step(void)")[1].splitlines()
    code = [line.split("/*")[0].strip() for line in lines if "edge_page" in line or "EDGE_RUN" in line]
    first_kernel = next(i for i, line in enumerate(code) if "tiny_multiply" in line)
    assert any("edge_page_start_read(1" in line for line in code[:first_kernel])
    assert any("edge_page_wait(1" in line for line in code[:first_kernel])
    update = next(i for i, line in enumerate(code) if "tiny_update" in line)
    assert any("edge_page_start_write(1" in line for line in code[update:])


def test_a_parameter_that_is_neither_stored_nor_placed_is_rejected() -> None:
    plan = storing_plan()
    with pytest.raises(InternalError, match="gives no offset"):
        emit_driver(tiny_graph(), replace(plan, stored=("momentum",)))
