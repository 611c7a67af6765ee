"""Which signatures the command line trusts: keys from a file that a flag names, or from the user's configuration."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from edgetrain.errors import UsageError
from edgetrain.locate import user_config_dir
from edgetrain_tuner.cache.trust import Trust

_KEY = re.compile(r"[0-9a-f]{64}")


def trusted_keys_path() -> Path:
    return user_config_dir() / "trusted-keys"


def trust_of(arguments: argparse.Namespace, *, require_signature: bool = False) -> Trust:
    """Raises `UsageError` for a file that holds something else than keys, or signatures required and no key known."""
    path = arguments.trusted_keys or trusted_keys_path()
    if arguments.trusted_keys is not None and not path.is_file():
        raise UsageError(f"there is no file `{path}`", fix="it holds a public key a line: 64 hex digits")
    keys = read_keys(path) if path.is_file() else frozenset()
    required = require_signature or bool(arguments.require_signature)
    if required and not keys:
        raise UsageError(
            "signatures are required, and no key is trusted",
            why="everything would be refused",
            fix=f"name the keys with --trusted-keys, or in {trusted_keys_path()}",
        )
    return Trust(keys=keys, require_signature=required)


def read_keys(path: Path) -> frozenset[str]:
    """The first word of each line; what follows, and lines that begin with `#`, are for people."""
    keys = set()
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        word = line.split("#")[0].split()[:1]
        if word and not _KEY.fullmatch(word[0].lower()):
            raise UsageError(
                f"line {number} of `{path}` holds no key",
                fix="a public key is 64 hex digits, as `push --sign` prints it",
            )
        keys |= {one.lower() for one in word}
    return frozenset(keys)
