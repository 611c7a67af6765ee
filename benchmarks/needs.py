"""What a benchmark needs beside edgetrain itself, asked for before anything is measured.

A benchmark that runs for an hour lists all that is missing at its start, each with the command that installs it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.step_models import Subject
from edgetrain.compiler.request import ZOO
from edgetrain.model.zoo_weights import packages_of_weights

_TORCH = ("torch",), "torch==2.13.0"
# What a peer imports, and what pip calls it. See `benchmarks/peers/README.md`.
_PEERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torch": _TORCH,
    "torch-compile": _TORCH,
    "jax": (("jax",), "'jax>=0.10'"),
    "ort": (("onnxruntime.training", "onnx"), "onnxruntime-training-cpu==1.19.2 onnx==1.16.2 torch==2.13.0"),
}
_FIND = """
import importlib.util, json, sys
def is_missing(name):
    try:
        return importlib.util.find_spec(name) is None
    except ImportError:  # of what it is a part of
        return True
print(json.dumps([name for name in sys.argv[1:] if is_missing(name)]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that is missing, and the command that brings it."""

    what: str
    install: str


def require(missing: Iterable[Need]) -> None:
    """Raises `SystemExit` that lists all that is missing, if anything is."""
    listed = list(dict.fromkeys(missing))
    if listed:
        lines = (f"  {need.what}\n    {need.install}" for need in listed)
        raise SystemExit("\n".join(("nothing was measured, for this is missing:", *lines)))


def missing_weights(subjects: Iterable[Subject]) -> Iterator[Need]:
    """The packages of weights that the models are built from and that are not installed here."""
    for subject in subjects:
        source = subject.source()
        for package in packages_of_weights(source.removeprefix(ZOO)) if source.startswith(ZOO) else ():
            if not package.is_installed:
                yield Need(what=f"the weights of {subject.model}", install=package.install)


def missing_peers(peers: Iterable[str], pythons: Mapping[str, str]) -> Iterator[Need]:
    """What peers lack in the interpreters that run them: those of `pythons`, or this one."""
    for peer in peers:
        modules, packages = _PEERS[peer]
        python = pythons.get(peer, sys.executable)
        if missing := missing_modules(python, modules):
            what = f"{', '.join(missing)}, for the peer {peer}"
            yield Need(what=what, install=_install(peer, python, packages))


def missing_torch() -> Iterator[Need]:
    """PyTorch in this process."""
    if importlib.util.find_spec("torch") is None:
        yield Need(what="torch, for the peer of single kernels", install=_install("torch", sys.executable, _TORCH[1]))


def missing_modules(python: str, modules: Sequence[str]) -> tuple[str, ...]:
    """Those that the interpreter does not find, or all where it does not run."""
    done = subprocess.run([python, "-c", _FIND, *modules], capture_output=True, text=True, check=False)
    return tuple(json.loads(done.stdout)) if done.returncode == 0 else tuple(modules)


def _install(peer: str, python: str, packages: str) -> str:
    """ONNX Runtime's training takes the place of `onnxruntime`, so it goes into an environment of its own."""
    if peer == "ort" and python == sys.executable:
        return f"python3.11 -m venv ort && ort/bin/pip install {packages}, then --python-of ort=ort/bin/python"
    return f"{python} -m pip install {packages}"
