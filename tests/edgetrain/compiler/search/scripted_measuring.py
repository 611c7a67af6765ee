"""A measuring process that measures nothing: what it answers is its first word, what it was asked goes to a file.

python scripted_measuring.py faster|slower|wrong|crash|hang|unopened LOG
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve()
_SECONDS = {"faster": 1e-3, "slower": 4e-3}


def measuring(mode: str, log: Path) -> tuple[str, ...]:
    """The command of a process that answers so."""
    return (sys.executable, str(SCRIPT), mode, str(log))


def asked(log: Path) -> list[str]:
    """What processes with that log were started for and asked, in its order."""
    return log.read_text().split() if log.exists() else []


def _outcome(mode: str) -> dict[str, Any]:
    if mode == "wrong":
        return {"status": "wrong", "largest_error": 0.5, "message": "differs by 5.0e-01 of the largest element"}
    measured = {"status": "measured", "seconds": _SECONDS[mode], "default_seconds": 2e-3, "n": 5}
    return {**measured, "largest_error": 1e-7, "against": "unscheduled"}


def _answers(mode: str, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    match request["job"], mode:
        case "open", "unopened":
            return [{"failed": "MemoryError: too large"}]
        case "open", _:
            return [{"seconds": 1e-3, "against": "unscheduled"}]
        case "close", _:
            return [{}]
        case "trial", "crash":
            os._exit(9)
        case "trial", "hang":
            threading.Event().wait()
    return [{"compiled": True}, _outcome(mode)]


def main(mode: str, log: str) -> None:
    sys.stdin.readline()
    with Path(log).open("a", buffering=1) as record:
        record.write("start\n")
        for line in sys.stdin:
            request = json.loads(line)
            record.write(f"{request['job']}\n")
            for answer in _answers(mode, request):
                sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
