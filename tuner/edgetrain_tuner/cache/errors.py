"""What can go wrong with a cache: one base class, and a subclass where the reader has to do something else about it."""

from __future__ import annotations


class CacheError(ValueError):
    """`what` is one sentence, `why` the cause. An entry that is refused, a file that is no cache."""

    def __init__(self, what: str, *, why: str = "") -> None:
        super().__init__(f"{what}: {why}" if why else what)
        self.what = what
        self.why = why


class EntryError(CacheError):
    """Text that is no entry; `mistakes` holds a sentence for each thing that is wrong with it."""

    def __init__(self, what: str, *, mistakes: tuple[str, ...]) -> None:
        super().__init__(what, why="; ".join(mistakes))
        self.mistakes = mistakes


class AddressError(CacheError):
    """An address that makes no sense, or one that wants another token, key or right than was given."""


class MissingEntryError(CacheError):
    """The remote has no entry of that id (any more)."""


class UnreachableError(CacheError):
    """The remote did not answer, or not in a way that can be understood."""
