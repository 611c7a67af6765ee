"""Every exception as one of our errors, so that each has words and an exit code. The one place that maps them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping

from edgetrain.errors import DataError, DeviceError, EdgetrainError, InternalError, InterruptedRunError, UsageError
from edgetrain.free_memory import address_space_bytes
from edgetrain.units import show_bytes
from edgetrain_tuner.cache.errors import AddressError, CacheError, UnreachableError

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "a check failed, or edgetrain has a bug",
    2: "the command or the recipe is wrong",
    3: "no plan fits the budget",
    4: "the model holds ops that cannot be imported or differentiated",
    5: "the model or the data is missing or broken",
    6: "the device, its compiler, memory or disk failed",
    7: "the loss became NaN or infinite",
    130: "stopped by a signal",
}

_TO_TRAIN, _TO_COMPILE = 210_000_000, 600_000_000  # addresses, measured with `ulimit -v` on two cores
_SHOWN = 100  # of a path that is too long
_NO_SPACE = os.strerror(errno.ENOSPC)
_NO_MEMORY = os.strerror(errno.ENOMEM)
_FIXES: Mapping[int, str] = {
    errno.ENOSPC: "free space there, or choose another disk with --out, --dump, TMPDIR or XDG_CACHE_HOME",
    errno.EDQUOT: "free space within your quota, or choose another disk with --out, TMPDIR or XDG_CACHE_HOME",
    errno.EROFS: "choose a writable disk with --out, TMPDIR or XDG_CACHE_HOME",
    errno.EACCES: "check the permissions, or choose another place with --out, TMPDIR or XDG_CACHE_HOME",
}


def as_edgetrain_error(error: BaseException) -> EdgetrainError:
    """The error itself where it is ours, else the one of ours that says the same."""
    if _is_out_of_memory(error):  # first: nothing more may be imported
        return _out_of_memory(address_space_bytes())
    import sqlite3  # here, because a command that goes well has no use for it

    match error:
        case EdgetrainError():
            return error
        case KeyboardInterrupt():
            return InterruptedRunError("interrupted; nothing was changed", fix="run the same command again")
        case shutil.Error():
            # `copytree` collects (source, destination, reason) and loses the error number on the way.
            _, destination, reason = error.args[0][0]
            return _refused(str(destination), str(reason), errno.ENOSPC if _NO_SPACE in str(reason) else 0)
        case OSError(errno=errno.ENAMETOOLONG):
            return UsageError(
                f"the path `{str(error.filename)[:_SHOWN]}…` is too long",
                why=error.strerror or str(error),
                fix="give a shorter one: a name has at most 255 bytes, a path 4,095",
            )
        case OSError():
            return _refused(
                error.filename if isinstance(error.filename, str) else None,
                error.strerror or str(error),
                error.errno or 0,
            )
        case CacheError():
            return _of_the_cache(error)
        case sqlite3.Error():
            return DeviceError(
                "the schedule cache cannot be used",
                why=str(error),
                fix=_FIXES[errno.EACCES].replace("--out, ", "--store, "),
            )
    return InternalError(
        f"internal error: {type(error).__name__}: {error}",
        why="this is a bug in edgetrain",
        fix="run it again with -v, and report the command and the traceback",
    )


def _out_of_memory(addresses_bytes: int | None) -> DeviceError:
    if addresses_bytes is None:
        return DeviceError(
            "this machine is out of memory", fix="close other programs, lower train.batch, or set a --budget"
        )
    needs = (
        f"training the smallest models needs about {show_bytes(_TO_TRAIN)}, compiling them {show_bytes(_TO_COMPILE)}"
    )
    is_known = addresses_bytes < _TO_COMPILE
    return DeviceError(
        f"out of memory: the limit of this shell is {show_bytes(addresses_bytes)} of addresses",
        why=needs if is_known else "",
        fix="raise it: `ulimit -v unlimited`",
    )


def _is_out_of_memory(error: BaseException) -> bool:
    """A library that cannot be loaded for want of memory is an `ImportError`; NumPy hides it behind one of its own."""
    chain: BaseException | None = error
    seen: list[BaseException] = []  # what is raised while it is handled may lead back to itself
    while chain is not None and chain not in seen:
        seen.append(chain)
        if isinstance(chain, MemoryError) or (isinstance(chain, OSError) and chain.errno == errno.ENOMEM):
            return True
        if isinstance(chain, ImportError) and ("failed to map" in str(chain) or _NO_MEMORY in str(chain)):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _of_the_cache(error: CacheError) -> EdgetrainError:
    match error:
        case AddressError():
            fix = "check the address, your rights there, and the token (--token-file); see `edgetrain cache --help`"
            return UsageError(error.what, why=error.why, fix=fix)
        case UnreachableError():
            fix = "try again when it is reachable; entries that were transferred are kept"
            return DeviceError(error.what, why=error.why, fix=fix)
    return DataError(error.what, why=error.why, fix="see `edgetrain cache verify`")


def _refused(path: str | None, reason: str, number: int) -> DeviceError:
    return DeviceError(
        f"the system refused to use {f'`{path}`' if path else 'a file'}",
        why=reason,
        fix=_FIXES.get(number, "check the path and the disk (`df`, `dmesg`)"),
    )
