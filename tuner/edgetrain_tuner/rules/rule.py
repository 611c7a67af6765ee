"""What a rule is: it proposes parameters from a model of the machine, lists others to try, and writes loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Contraction
from edgetrain_tuner.rules.inlining import inlined
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A PrimFunc and what all rules ask about it; `contraction` is None where it is no sum of products."""

    function: Any
    contraction: Contraction | None
    _derived: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def derived(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result of `make`, computed once for each key: analyses that several calls of a rule need."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    @cached_property
    def inlined(self) -> Any | None:
        """The PrimFunc with everything inlined that can be; None for one of plain loops, without blocks."""
        kernel = inlined(self.function)
        return None if kernel is None else kernel.function


class Rule(Protocol):
    """Writes kernels of one family. Parameters have an order: which values fit depends on the parameters before."""

    @property
    def name(self) -> str: ...

    def names(self, kernel: Kernel) -> Sequence[str]:
        """The parameters, in their order."""
        ...

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        """The parameters that need no search; None if the rule has nothing to say about the kernel."""
        ...

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
        """Values of a parameter worth trying, growing, after those `before` it.

        Each leads to a schedule that fits; of a rule that `CarriesOver`, some are still refused when they are written.
        """
        ...

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        """Raises `ScheduleRefusedError` where the parameters do not fit the kernel or the registers."""
        ...

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        """The scheduled PrimFunc. Raises `ScheduleRefusedError` like `check`."""
        ...


@runtime_checkable
class CarriesOver(Protocol):
    """A rule without proposals, which adapts parameters to another kernel by itself."""

    def carried_over(self, kernel: Kernel, machine: Machine, wanted: Parameters) -> dict[str, Values]:
        """The nearest parameters that fit. Raises `ScheduleRefusedError` where there are none."""
        ...


def fits(rule: Rule, kernel: Kernel, machine: Machine, parameters: Parameters) -> bool:
    try:
        rule.check(kernel, machine, parameters)
    except ScheduleRefusedError:
        return False
    return True


def refitted(rule: Rule, kernel: Kernel, machine: Machine, wanted: Parameters) -> dict[str, Values]:
    """The parameters as they are where they fit, else the nearest choices one after the other.

    Near is near in the logarithm: from 4 to 8 is as far as from 32 to 64. A missing parameter gets its proposed value.
    Raises `ScheduleRefusedError` where the rule cannot write the kernel at all.
    """
    if fits(rule, kernel, machine, wanted):
        return dict(wanted)
    if isinstance(rule, CarriesOver):
        return rule.carried_over(kernel, machine, wanted)
    proposed = rule.propose(kernel, machine)
    if proposed is None:
        raise ScheduleRefusedError(f"rule {rule.name} does not write this kernel")
    chosen: dict[str, Values] = {}
    for name in rule.names(kernel):
        target = wanted.get(name, proposed[name])
        choices = rule.choices(kernel, machine, name, chosen)
        if not choices:
            return dict(proposed)
        chosen[name] = min(choices, key=lambda value: (distance(value, target), value))
    return chosen if fits(rule, kernel, machine, chosen) else dict(proposed)


def distance(one: Values, other: Values) -> float:
    """Between two values of a parameter, in the logarithm; by their products where the axes are not the same ones."""
    if len(one) != len(other):
        one, other = (math.prod(one),), (math.prod(other),)
    apart = sum(abs(math.log2((a + 1) / (b + 1))) for a, b in zip(one, other, strict=True))
    return apart + abs(math.log2((math.prod(one) + 1) / (math.prod(other) + 1)))


def neighbours_of(
    rule: Rule, kernel: Kernel, machine: Machine, parameters: Parameters
) -> Iterator[tuple[str, dict[str, Values]]]:
    """Each parameter moved to the next choice on either side, the later ones refitted to it; with the moved name."""
    names = [name for name in rule.names(kernel) if name in parameters]
    for position, name in enumerate(names):
        before = {n: parameters[n] for n in names[:position]}
        choices = rule.choices(kernel, machine, name, before)
        for value in _next_to(choices, parameters[name]):
            try:
                moved = refitted(rule, kernel, machine, {**parameters, name: value})
            except ScheduleRefusedError:
                continue
            if moved[name] == value and moved != dict(parameters):
                yield name, moved


def _next_to(choices: Sequence[Values], value: Values) -> list[Values]:
    """The choices on either side of `value`, which need not be one of them."""
    others = sorted((c for c in choices if c != value), key=lambda c: (distance(c, value), c))
    below = [c for c in others if _is_less(c, value)][:1]
    above = [c for c in others if not _is_less(c, value)][:1]
    return below + above


def _is_less(one: Values, other: Values) -> bool:
    return (math.prod(one), one) < (math.prod(other), other)


def on_log_grid(most: int, steps_a_doubling: int = 2) -> list[int]:
    """Whole numbers from 1 to `most`, about evenly spaced in the logarithm, `most` included."""
    count = max(1, round(math.log2(most) * steps_a_doubling)) if most > 1 else 0
    return sorted({1, most, *(round(2 ** (n / steps_a_doubling)) for n in range(count))} & set(range(1, most + 1)))
