"""What a rule needs to know of a target: numbers, not names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    vector_bits: int  # width of a vector register; 0 or 32: scalar code
    vector_registers: int
    cores: int

    @property
    def lanes(self) -> int:
        """float32 elements in a vector register."""
        return max(self.vector_bits // 32, 1)
