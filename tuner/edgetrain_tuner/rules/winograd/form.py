"""Which contractions Winograd's algorithm computes: 3 x 3 convolutions at stride 1, and their gradients.

    C[n, f, y, x] = Σ_{c, r, s} image[n, c, y ± r + low, x ± s + low] · weights[f, c, r, s]
    C[f, c, r, s] = Σ_{n, y, x} image[n, c, y + r + low, x + s + low] · gradient[n, f, y, x]

A forward pass reads the image at y + r. A data gradient reads it at y − r: the same with the taps in reverse order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.rules.contraction import Axis, Contraction, uses
from edgetrain_tuner.rules.product.staging import Reach, reach_of
from edgetrain_tuner.rules.window.form import Coordinate

OUTPUTS, TAPS = 2, 3  # of a tile, along rows and along columns
REACHED = OUTPUTS + TAPS - 1


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Three taps that slide over the outputs along rows, or along columns."""

    output: Axis
    tap: Axis
    is_reversed: bool
    reach: Coordinate  # of the image: what the tiles of two outputs read

    @property
    def tiles(self) -> int:
        return self.reach.position.extent

    def tap_at(self, place: Any) -> Any:
        """The tap that is multiplied with this one of the three places, which are in the order of the image."""
        return TAPS - 1 - place if self.is_reversed else place


@dataclass(frozen=True, kw_only=True)
class WinogradForm:
    """Either form above; `image` is an element of the tensor, by image, channel and both sweeps' coordinates.

    It is the contraction's A. Its B are weights, or the gradient of what was convolved.
    """

    contraction: Contraction
    images: Axis | None
    channels: Axis
    filters: Axis
    rows: Sweep
    columns: Sweep
    image: Any

    @property
    def is_filter_major(self) -> bool:
        """Whether all of B that belongs to a filter is contiguous: weights as (filters, channels, ...)."""
        b = self.contraction.b
        return _first_place(b, self.filters) < _first_place(b, self.channels)

    @property
    def image_count(self) -> int:
        return 1 if self.images is None else self.images.extent


def find_convolution(contraction: Contraction) -> WinogradForm | None:
    """The convolution, with its filters along j; None for any other contraction, taps or stride."""
    return _found(contraction.transposed(), sums_over_taps=True)


def find_weight_gradient(contraction: Contraction) -> WinogradForm | None:
    """The weight gradient of such a convolution; None where the contraction is something else."""
    return _found(contraction.transposed(), sums_over_taps=False)


def _found(transposed: Contraction, *, sums_over_taps: bool) -> WinogradForm | None:
    is_plain = not transposed.s and not transposed.limits and transposed.present is None
    if not is_plain or len(transposed.j) != 1 or not isinstance(transposed.b, TensorLoad):
        return None
    reach = reach_of(transposed)
    if reach is None:
        return None
    sweeps: list[Sweep] = []
    of_i: list[Axis] = []
    of_k: list[Axis] = []
    indices = []
    for dimension in range(len(reach.bases)):
        i_used, k_used = _used(reach, dimension)
        if i_used and k_used:
            outputs, taps = (i_used, k_used) if sums_over_taps else (k_used, i_used)
            sweep = _sweep(reach, dimension, outputs, taps)
            if sweep is None or (sweep.is_reversed and not sums_over_taps):
                return None
            sweeps.append(sweep)
            indices.append(sweep.reach.variable)
            continue
        of_i += [use.axis for use in i_used]
        of_k += [use.axis for use in k_used]
        indices.append(reach.load.indices[dimension])
    images, channels = (of_i, of_k) if sums_over_taps else (of_k, of_i)
    is_contiguous = bool(sweeps) and indices[-1].same_as(sweeps[-1].reach.variable)
    if len(sweeps) != 2 or not is_contiguous or len(images) > 1 or len(channels) != 1:
        return None
    if len(transposed.i) != 2 + len(of_i) or len(transposed.k) != 2 + len(of_k):
        return None
    return WinogradForm(
        contraction=transposed,
        images=images[0] if images else None,
        channels=channels[0],
        filters=transposed.j[0],
        rows=sweeps[0],
        columns=sweeps[1],
        image=reach.load.source[tuple(indices)],
    )


def _first_place(load: Any, axis: Axis) -> int:
    """The first dimension of the tensor that the axis moves in."""
    return next(n for n, index in enumerate(load.indices) if uses(index, axis.variable))


@dataclass(frozen=True, kw_only=True)
class _Use:
    """Of an axis, in a dimension's index: times its slope."""

    axis: Axis
    slope: int


def _used(reach: Reach, dimension: int) -> tuple[list[_Use], list[_Use]]:
    """The axes of i and of k that the dimension's index depends on."""
    slopes, count = reach.slopes[dimension], len(reach.i)
    return (
        [_Use(axis=axis, slope=slope) for axis, slope in zip(reach.i, slopes[:count], strict=True) if slope],
        [_Use(axis=axis, slope=slope) for axis, slope in zip(reach.k, slopes[count:], strict=True) if slope],
    )


def _sweep(reach: Reach, dimension: int, outputs: Sequence[_Use], taps: Sequence[_Use]) -> Sweep | None:
    base, extent = reach.bases[dimension], int(reach.load.source.ty.shape[dimension])
    if len(outputs) != 1 or len(taps) != 1 or not isinstance(base, tirx.IntImm):
        return None
    output, tap, step = outputs[0].axis, taps[0].axis, taps[0].slope
    if tap.extent != TAPS or outputs[0].slope != 1 or abs(step) != 1:
        return None
    dtype = output.variable.ty.dtype
    is_reversed = step < 0
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
