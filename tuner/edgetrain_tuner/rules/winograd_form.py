"""Which contractions are convolutions that Winograd's algorithm computes: 3 taps by 3, one step at a time.

    C[n, f, y, x] = Σ_{c, r, s} image[n, c, y ± r + low, x ± s + low] · weights[f, c, r, s]

A forward pass reads the image at y + r, a data gradient at y − r: the same with the taps in reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import Axis, Contraction, uses
from edgetrain_tuner.rules.staging import Reach, reach_of
from edgetrain_tuner.rules.windows import Coordinate

OUTPUTS, TAPS = 2, 3  # of a tile, along either direction
REACHED = OUTPUTS + TAPS - 1


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Three taps that move over the outputs in one direction, rows or columns."""

    output: Axis
    tap: Axis
    is_reversed: bool
    reach: Coordinate  # of the image: what the tiles of two outputs read

    @property
    def tiles(self) -> int:
        return self.reach.position.extent

    def tap_at(self, place: Any) -> Any:
        """The tap that meets what lies at this place of the three, in the order of the image."""
        return TAPS - 1 - place if self.is_reversed else place


@dataclass(frozen=True, kw_only=True)
class Convolved:
    """The form above; `image` is an element of the tensor, by image, channel and both sweeps' coordinates."""

    contraction: Contraction
    images: Axis | None
    channels: Axis
    filters: Axis
    rows: Sweep
    columns: Sweep
    image: Any
    is_filter_major: bool  # all weights of a filter lie together

    @property
    def image_count(self) -> int:
        return 1 if self.images is None else self.images.extent


def find_convolution(contraction: Contraction) -> Convolved | None:
    """The convolution, vectors to run along its filters; None where the contraction is none, or has other steps."""
    turned = contraction.transposed()
    is_plain = not turned.s and not turned.limits and turned.present is None
    if not is_plain or len(turned.j) != 1 or not isinstance(turned.b, TensorLoad):
        return None
    reach = reach_of(turned)
    if reach is None:
        return None
    sweeps: list[Sweep] = []
    images: list[Axis] = []
    channels: list[Axis] = []
    indices = []
    for dimension in range(len(reach.bases)):
        i_used, k_used = _used(reach, dimension)
        if i_used and k_used:
            sweep = _sweep(reach, dimension, i_used, k_used)
            if sweep is None:
                return None
            sweeps.append(sweep)
            indices.append(sweep.reach.variable)
            continue
        images += i_used
        channels += k_used
        indices.append(reach.load.indices[dimension])
    is_contiguous = bool(sweeps) and indices[-1].same_as(sweeps[-1].reach.variable)
    if len(sweeps) != 2 or not is_contiguous or len(images) > 1 or len(channels) != 1:
        return None
    if len(turned.i) != 2 + len(images) or len(turned.k) != 3:
        return None
    return Convolved(
        contraction=turned,
        images=images[0] if images else None,
        channels=channels[0],
        filters=turned.j[0],
        rows=sweeps[0],
        columns=sweeps[1],
        image=reach.load.source[tuple(indices)],
        is_filter_major=_first_place(turned.b, turned.j[0]) < _first_place(turned.b, channels[0]),
    )


def _first_place(load: Any, axis: Axis) -> int:
    """The first dimension of the tensor that the axis moves in."""
    return next(n for n, index in enumerate(load.indices) if uses(index, axis.variable))


def _used(reach: Reach, dimension: int) -> tuple[list[Axis], list[Axis]]:
    """The axes of i and of k that the dimension's index depends on."""
    slopes, count = reach.slopes[dimension], len(reach.i)
    return (
        [axis for axis, slope in zip(reach.i, slopes[:count], strict=True) if slope],
        [axis for axis, slope in zip(reach.k, slopes[count:], strict=True) if slope],
    )


def _sweep(reach: Reach, dimension: int, i_used: Sequence[Axis], k_used: Sequence[Axis]) -> Sweep | None:
    base, extent = reach.bases[dimension], int(reach.load.source.ty.shape[dimension])
    steps = [slope for slope in reach.slopes[dimension] if slope]
    if len(i_used) != 1 or len(k_used) != 1 or k_used[0].extent != TAPS or not isinstance(base, tirx.IntImm):
        return None
    if steps not in ([1, 1], [1, -1]):
        return None
    (output,), (tap,) = i_used, k_used
    dtype = output.variable.ty.dtype
    is_reversed = steps[1] < 0
    return Sweep(
        output=output,
        tap=tap,
        is_reversed=is_reversed,
        reach=Coordinate(
            variable=tirx.Var("coordinate", dtype),
            position=Axis(variable=tirx.Var("tile", dtype), extent=-(-output.extent // OUTPUTS)),
            tap=Axis(variable=tirx.Var("place", dtype), extent=REACHED),
            phase=None,
            stride=OUTPUTS,
            step=1,
            bases=(int(base) - (TAPS - 1 if is_reversed else 0),),
            extent=extent,
        ),
    )
