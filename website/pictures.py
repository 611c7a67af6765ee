"""Draws the pictures of `docs/pictures/`: `python -m website.pictures`. The same code gives the same bytes.

The plans are the planner's own, for a network of four layers; nothing in them is drawn by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgetrain.cost.analytic import OpCost
from edgetrain.drawing.scene import Area, Dot, Label, Line, Point, Scene, Shape, to_svg
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph, validate
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget, Compute, Free, FunctionPlan, PageIn, PageOut, Plan
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, Joules, Seconds

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"

_LAYERS = 4
_TENSOR_BYTES = 65536
_WIDTH = 720
_LEFT, _RIGHT, _ROW = 190.0, _WIDTH - 10.0, 19.0  # of the bars of a plan
_INK, _QUIET, _RULE = "#1f2933", "#61707f", "#d5dbe2"
_KEPT, _AGAIN, _PAGED, _GRADIENT = "#2f6fb0", "#d9822b", "#6a51a3", "#b6c4d2"
_TEAL, _PALE = "#14807a", "#e8f1f8"


def network() -> TrainGraph:
    """Four layers of one size: forward, loss, and for each layer a gradient and an update."""
    tensors = [_tensor("input", 4096, Role.INPUT), _tensor("loss", 64, Role.OUTPUT)]
    forward, backward = [], []
    for layer in range(_LAYERS):
        before = f"activation {layer}" if layer else "input"
        made, weight, gradient = f"activation {layer + 1}", f"weight {layer + 1}", f"gradient {layer + 1}"
        tensors += [
            _tensor(weight, 1024, Role.PARAMETER),
            _tensor(made, _TENSOR_BYTES),
            _tensor(gradient, _TENSOR_BYTES),
        ]
        forward.append(_op(f"forward {layer + 1}", (before, weight), (made,), Phase.FORWARD))
        backward.append(_op(f"update {layer + 1}", (gradient, before, weight), (weight,), Phase.UPDATE))
        if layer:
            backward.append(
                _op(f"backward {layer + 1}", (gradient, weight, before), (f"gradient {layer}",), Phase.BACKWARD)
            )
    loss = _op("loss", (f"activation {_LAYERS}",), ("loss", f"gradient {_LAYERS}"), Phase.LOSS)
    ops = (*forward, loss, *reversed(backward))
    graph = TrainGraph(name="four layers", tensors={t.name: t for t in tensors}, functions={"step": ops})
    validate(graph)
    return graph


def three_plans() -> Scene:
    """The same step three times: everything kept, recomputed, and paged."""
    graph = network()
    costs = {"step": {op.name: OpCost(seconds=Seconds(1e-3), joules=Joules(1e-3)) for op in graph.functions["step"]}}
    # Fast beside the ops: so paging costs less than running them again.
    storage = Storage(
        read_bytes_per_s=1e8, write_bytes_per_s=1e8, joules_per_byte_read=0, joules_per_byte_written=0, latency_s=0
    )
    keep = make_plan(graph, Budget(), costs, solver="keep-all")
    less = Budget(memory_bytes=Bytes(keep.peak_bytes - 2 * _TENSOR_BYTES + 16384))
    plans = {
        "keep": keep,
        "recompute": make_plan(graph, less, costs),
        "page": make_plan(graph, less, costs, storage=storage),
    }
    height = 190
    shapes = [
        shape for row, (name, plan) in enumerate(plans.items()) for shape in _plan_rows(name, graph, plan, row * height)
    ]
    return Scene(
        width=_WIDTH, height=height * len(plans) + 34, shapes=(*shapes, *_plan_legend(height * len(plans) + 16))
    )


def _plan_rows(name: str, graph: TrainGraph, plan: Plan, top: float) -> Iterator[Shape]:
    """A row for each tensor, a bar for each of its times in memory, a dot for each transfer."""
    function = plan.functions["step"]
    columns = _columns(function)
    rows = [f"activation {n + 1}" for n in range(_LAYERS)] + [f"gradient {n}" for n in range(_LAYERS, 0, -1)]
    middle_of = {row: top + 26 + number * _ROW for number, row in enumerate(rows)}
    yield Line(points=((10, top + 8), (_RIGHT, top + 8)), color=_RULE)
    yield Label(at=(10, top + 32), text=name, size=16, is_bold=True, color=_INK)
    yield Label(at=(10, top + 54), text=f"{plan.peak_bytes / 1000:.0f} kB", color=_QUIET)
    yield Label(at=(10, top + 72), text=f"{plan.seconds * 1000:.0f} ms", color=_QUIET)
    loss = next(i for i, step in enumerate(function.steps) if isinstance(step, Compute) and step.op == "loss")
    yield Line(points=((columns[loss][1], top + 14), (columns[loss][1], top + 172)), color=_RULE, is_dashed=True)
    for row, middle in middle_of.items():
        yield Label(at=(_LEFT - 8, middle + 4), text=row, size=11, anchor="end", color=_QUIET)
    for placement in sorted(function.placements, key=lambda p: (p.start, p.tensor)):
        if placement.tensor in middle_of:
            x1, x2 = columns[placement.start][0], columns[placement.end][1]
            color = _color(function, placement.tensor, placement.start)
            bar = _box(x1, middle_of[placement.tensor] - 7, x2 - x1, 14)
            yield Area(points=bar, color=color, title=placement.tensor)
    for (left, right), step in zip(columns, function.steps, strict=True):
        if isinstance(step, PageOut | PageIn) and step.tensor in middle_of:
            title = "written" if isinstance(step, PageOut) else "read"
            yield Dot(center=((left + right) / 2, middle_of[step.tensor]), radius=4, color="#ffffff", title=title)


def _columns(function: FunctionPlan) -> Sequence[tuple[float, float]]:
    """Where each step is drawn; a `Free` takes no time and ends where the step before it does."""
    count = sum(not isinstance(step, Free) for step in function.steps)
    width = (_RIGHT - _LEFT) / count
    columns: list[tuple[float, float]] = []
    done = 0
    for step in function.steps:
        if isinstance(step, Free):
            columns.append((_LEFT + done * width, _LEFT + done * width))
        else:
            columns.append((_LEFT + done * width, _LEFT + (done + 1) * width))
            done += 1
    return columns


def _color(function: FunctionPlan, tensor: str, start: int) -> str:
    if tensor.startswith("gradient"):
        return _GRADIENT
    if any(isinstance(step, PageOut | PageIn) and step.tensor == tensor for step in function.steps):
        return _PAGED
    stays = [placement.start for placement in function.placements if placement.tensor == tensor]
    return _AGAIN if start > min(stays) else _KEPT


def _plan_legend(y: float) -> Iterator[Shape]:
    entries = (("activation", _KEPT), ("made again", _AGAIN), ("paged (○ transfer)", _PAGED), ("gradient", _GRADIENT))
    x = _LEFT
    for text, color in entries:
        yield Area(points=_box(x, y - 9, 12, 12), color=color)
        yield Label(at=(x + 18, y + 1), text=text, color=_QUIET)
        x += 40 + 7 * len(text)


def targets() -> Scene:
    """A model and a profile become a plan, and the plan two programs."""
    boxes = (
        _Box(x=10, y=20, text="model.onnx", below="every shape a number"),
        _Box(x=10, y=110, text="cortex-m7.toml", below="512 KiB, rates, processor"),
        _Box(x=265, y=65, text="plan", below="an address for each tensor"),
        _Box(x=520, y=20, text="device program", below="a C library to copy there"),
        _Box(x=520, y=110, text="program for here", below="the same plan, runs here"),
    )
    arrows = (((200, 50), (262, 84)), ((200, 140), (262, 106)), ((455, 84), (517, 50)), ((455, 106), (517, 140)))
    return Scene(width=_WIDTH, height=190, shapes=(*_boxes(boxes), *(s for a, b in arrows for s in _arrow(a, b))))


def resume() -> Scene:
    """Two runs as rows of steps: one is stopped after the sixth and goes on."""
    first, size, done, steps, gap = 150.0, 40.0, 6, 10, 66.0
    stop = first + done * size + gap / 2 - 3
    shapes: list[Shape] = []
    for y, name in ((20.0, "never stopped"), (90.0, "stopped, resumed")):
        shift = gap if name.startswith("stopped") else 0.0
        shapes.append(Label(at=(10, y + 17), text=name, is_bold=True, color=_INK, size=13))
        for step in range(steps):
            x = first + step * size + (shift if step >= done else 0)
            shapes.append(Area(points=_box(x, y, size - 6, 24), color=_TEAL if step < done or not shift else _KEPT))
            shapes.append(Label(at=(x + size / 2 - 3, y + 17), text=str(step + 1), anchor="middle", color="#ffffff"))
        shapes.append(Label(at=(first + steps * size + shift + 4, y + 17), text="same bits", color=_INK, size=13))
    shapes += [
        Label(at=(stop, 72), text="checkpoint: parameters, state, position", anchor="middle", color=_QUIET),
        Line(points=((stop, 80), (stop, 124)), color=_AGAIN, width=3),
        Label(at=(stop, 142), text="Ctrl-C, crash, power cut", anchor="middle", color=_AGAIN),
    ]
    return Scene(width=_WIDTH, height=156, shapes=tuple(shapes))


def schedules() -> Scene:
    """Where a kernel's schedule comes from."""
    sources = (
        ("yours", "found by edgetrain tune"),
        ("your team's", "taken by cache pull"),
        ("edgetrain's", "ships with it"),
        ("a rule", "always has an answer"),
    )
    boxes = (
        _Box(x=10, y=118, text="kernel", below="loops, shape, processor"),
        *(_Box(x=265, y=10 + 72 * row, text=text, below=below) for row, (text, below) in enumerate(sources)),
        _Box(x=520, y=118, text="code", below="compiled once, then kept"),
    )
    middles = [40 + 72 * row for row in range(len(sources))]
    arrows = [((200, 148), (262, y)) for y in middles] + [((455, y), (517, 148)) for y in middles]
    shapes = (*_boxes(boxes), *(s for a, b in arrows for s in _arrow(a, b)))
    return Scene(width=_WIDTH, height=298, shapes=shapes)


def icon() -> Scene:
    """The steps of a memory timeline below a budget, small."""
    heights = (10, 18, 26, 30, 24, 14)
    bars = [Area(points=_box(4 + 7 * i, 40 - h, 6, h), color=_TEAL) for i, h in enumerate(heights)]
    return Scene(width=48, height=48, shapes=(*bars, Area(points=_box(2, 6, 44, 3), color=_AGAIN)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    x: float
    y: float
    text: str
    below: str


def _boxes(boxes: Sequence[_Box]) -> Iterator[Shape]:
    for box in boxes:
        yield Area(points=_box(box.x, box.y, 190, 60), color=_PALE)
        yield Area(points=_box(box.x, box.y, 4, 60), color=_KEPT)
        yield Label(at=(box.x + 16, box.y + 26), text=box.text, size=14, is_bold=True, color=_INK)
        yield Label(at=(box.x + 16, box.y + 45), text=box.below, size=12, color=_QUIET)


def _arrow(start: Point, end: Point) -> Iterator[Shape]:
    (x1, y1), (x2, y2) = start, end
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    base = (x2 - 9 * dx, y2 - 9 * dy)
    yield Line(points=(start, base), color=_QUIET, width=1.5)
    yield Area(points=(end, (base[0] - 4 * dy, base[1] + 4 * dx), (base[0] + 4 * dy, base[1] - 4 * dx)), color=_QUIET)


def _box(x: float, y: float, width: float, height: float) -> tuple[Point, ...]:
    return ((x, y), (x + width, y), (x + width, y + height), (x, y + height))


def _tensor(name: str, nbytes: int, role: Role = Role.TEMPORARY) -> Tensor:
    return Tensor(name=name, shape=(nbytes // 4,), dtype="float32", role=role)


def _op(name: str, reads: tuple[str, ...], writes: tuple[str, ...], phase: Phase) -> Op:
    return Op(name=name, kernel=name, reads=reads, writes=writes, phase=phase)


PICTURES: Mapping[str, Callable[[], Scene]] = {
    "three-plans": three_plans,
    "targets": targets,
    "resume": resume,
    "schedules": schedules,
    "icon": icon,
}


def main() -> None:
    """Writes every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(to_svg(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
