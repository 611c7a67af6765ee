"""Sliding-window geometry, shared by convolutions and pools: which output and which tap meet at an input position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import constant_like, tirx


@dataclass(frozen=True, slots=True)
class Window:
    """A 2-D window's geometry."""

    strides: tuple[int, int]
    pads: tuple[int, int]  # top and left; bottom and right follow from the output's size
    dilation: tuple[int, int]
    groups: int = 1

    @property
    def visits_only_hits(self) -> bool:
        """Whether the taps that meet a position can be enumerated without testing each one."""
        return all(d == 1 for d in self.dilation)

    def tap_count(self, taps: int, axis: int) -> int:
        """How many taps must be tried at one input position."""
        return -(-taps // self.strides[axis]) if self.visits_only_hits else taps

    def meet(self, position: Any, axis: int, trial: Any, taps: int, outputs: int) -> tuple[Any, Any, list[Any]]:
        """The output coordinate and the tap that meet at `position` on `trial`, and the conditions under which they do.

        With stride t and no dilation, position h meets only the taps r ≡ h + pad (mod t): r = t·trial + (h + pad)
        mod t, at the output (h + pad) div t − trial. So no tap is tried in vain.
        """
        stride, dilation = self.strides[axis], self.dilation[axis]
        shifted = position + self.pads[axis]
        if self.visits_only_hits:
            tap = trial * stride + tirx.floormod(shifted, stride) if stride > 1 else trial
            place = tirx.floordiv(shifted, stride) - trial if stride > 1 else shifted - trial
            guards = [tap < taps] if taps % stride else []
        else:
            tap = trial
            reach = shifted - trial * dilation
            place = tirx.floordiv(reach, stride)
            guards = [tirx.floormod(reach, stride) == 0] if stride > 1 else []
        return place, tap, [place >= 0, place < outputs, *guards]

    def source(self, output: Any, axis: int, tap: Any) -> Any:
        """The input coordinate that `tap` of the window at `output` reads (outside the tensor in the padding)."""
        return output * self.strides[axis] + tap * self.dilation[axis] - self.pads[axis]

    def inside(self, position: Any, axis: int, *, outputs: int, size: int, taps: int) -> list[Any]:
        """Conditions for `source` to be inside a tensor of `size`; empty where it always is."""
        reach = (outputs - 1) * self.strides[axis] + (taps - 1) * self.dilation[axis] - self.pads[axis]
        low = [position >= 0] if self.pads[axis] > 0 else []
        high = [position < size] if reach >= size else []
        return low + high

    def taps_between(self, output: Any, axis: int, taps: int, first: int, end: int) -> Any:
        """How many taps of the window at `output` read a coordinate in [first, end)."""
        start = self.source(output, axis, 0)
        dilation = self.dilation[axis]
        skipped = tirx.max(tirx.floordiv(first - start + dilation - 1, dilation), 0)
        reached = tirx.min(tirx.floordiv(end - start + dilation - 1, dilation), taps)
        return reached - skipped


def window_of(attributes: Any, *, groups: int = 1) -> Window:
    """From the attributes of a Relax conv2d or pool2d."""
    padding = [int(p) for p in attributes.padding]
    return Window(
        strides=(int(attributes.strides[0]), int(attributes.strides[1])),
        pads=(padding[0], padding[1 if len(padding) > 1 else 0]),
        dilation=(int(attributes.dilation[0]), int(attributes.dilation[1])),
        groups=groups,
    )


def end_pads_of(attributes: Any) -> tuple[int, int]:
    """The padding below and to the right, before `ceil_mode` adds to it."""
    padding = [int(p) for p in attributes.padding]
    return padding[2 if len(padding) == 4 else 0], padding[3 if len(padding) == 4 else -1]


def guarded(conditions: list[Any], value: Any, otherwise: Any = None) -> Any:
    """`value` where it may be read, else zero: reads outside the tensor must not happen at all."""
    if not conditions:
        return value
    return tirx.if_then_else(tirx.all(*conditions), value, constant_like(0, value) if otherwise is None else otherwise)
