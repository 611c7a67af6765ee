"""Along which side of a contraction vectors run: that along which the result is contiguous, or the other one.

As found, vectors run along the contiguous axis of the result. For a convolution B is then the image, and each element
is packed once for every tap of the window. Transposed, vectors run along the filters: the weights are packed instead,
which are fewer and are used at every place, and elements of the image are broadcast one by one, at any stride. In
exchange the result is stored with a stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain_tuner.rules.contraction import Contraction, unguarded
from edgetrain_tuner.rules.product.staging import Reach, reach_of

AS_FOUND, TRANSPOSED = 1, 2


@dataclass(frozen=True, kw_only=True)
class VectorSide:
    """A contraction that is computed with vectors along j; with a `reach`, A is read from a copy with its padding."""

    contraction: Contraction
    reach: Reach | None = None
    is_transposed: bool = False


def vector_sides(contraction: Contraction) -> Mapping[int, VectorSide]:
    """The sides that vectors can run along, by their number in a schedule."""
    sides = {AS_FOUND: VectorSide(contraction=contraction)}
    transposed = contraction.transposed()
    reach = reach_of(transposed)
    if reach is not None:
        needs_copy = unguarded(transposed.a)[0] is not None
        sides[TRANSPOSED] = VectorSide(contraction=transposed, reach=reach if needs_copy else None, is_transposed=True)
    return sides
