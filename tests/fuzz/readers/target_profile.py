"""A target's profile."""

from __future__ import annotations

import tomllib

from edgetrain.targets.profile import load_target, parse_target, to_toml
from tests.fuzz.harness import documented, file_of

WORDS = (
    *(
        b"[codegen]",
        b"[storage]",
        b"value = ",
        b'source = "datasheet: "',
        b"memory_bytes = ",
        b"inf",
        b"1" * 400,
        b"nan",
    ),
    *(b"flops_per_s", b"cache_bytes", b"vector_bits", b'"bare-metal"', b"idle_w", b"name = "),
)


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "board.toml") as path:
        target = load_target(path)
        assert (
            parse_target(tomllib.loads(to_toml(target)), name=target.name, where="the same").devices == target.devices
        )
