"""Words of other tools, and what they are called here: a mistake is answered with the command that was meant."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

# Where several verbs could be meant, the first that there is.
_VERBS: Mapping[str, tuple[str, ...]] = {
    "train": ("fit",),
    "finetune": ("fit",),
    "fine-tune": ("fit",),
    "learn": ("fit",),
    "run": ("fit",),
    "start": ("fit",),
    "resume": ("fit",),
    "retrain": ("fit",),
    "test": ("eval",),
    "evaluate": ("eval",),
    "validate": ("eval",),
    "score": ("eval",),
    "predict": ("predict", "eval"),
    "infer": ("predict", "eval"),
    "inference": ("predict", "eval"),
    "classify": ("predict", "eval"),
    "convert": ("export",),
    "save": ("export",),
    "compile": ("export",),
    "deploy": ("export",),
    "quantize": ("export",),
    "list": ("recipes",),
    "ls": ("recipes",),
    "models": ("recipes",),
    "zoo": ("recipes",),
    "show": ("inspect",),
    "info": ("inspect",),
    "summary": ("inspect",),
    "describe": ("inspect",),
    "devices": ("targets",),
    "boards": ("targets",),
    "benchmark": ("tune",),
    "bench": ("tune",),
    "optimize": ("tune",),
    "autotune": ("tune",),
    "profile": ("plan",),
    "memory": ("plan",),
    "estimate": ("plan",),
    "verify": ("check",),
    "diagnose": ("doctor",),
    "env": ("doctor",),
    "clean": ("cache",),
    "results": ("report", "eval"),
    "dashboard": ("report", "eval"),
    "diff": ("compare", "plan"),
    "completions": ("completion",),
}
_KEYS: Mapping[str, str] = {
    "--epochs": "train.epochs",
    "--epoch": "train.epochs",
    "--steps": "train.steps",
    "--max-steps": "train.steps",
    "--batch": "train.batch",
    "--batch-size": "train.batch",
    "--lr": "train.learning_rate",
    "--learning-rate": "train.learning_rate",
    "--optimizer": "train.optimizer",
    "--loss": "train.loss",
    "--seed": "train.seed",
    "--patience": "train.patience",
    "--momentum": "train.momentum",
    "--weight-decay": "train.weight_decay",
    "--data": "data.source",
    "--dataset": "data.source",
    "--classes": "model.classes",
    "--num-classes": "model.classes",
    "--metric": "metric",
}
_FLAGS: Mapping[str, str] = {
    "--output": "--out",
    "--output-dir": "--out",
    "--device": "--target",
    "--memory": "--budget",
    "--jobs": "--threads",
    "--num-threads": "--threads",
    "--debug": "--verbose",
    "--silent": "--quiet",
}
_SWITCHES = ("--verbose", "--quiet")


def meant_verb(word: str, known: Collection[str]) -> str | None:
    """The verb that another tool's word stands for, or None."""
    return next((verb for verb in _VERBS.get(word.lower(), ()) if verb in known), None)


def meant_for_flag(flag: str, words: Sequence[str], known: Collection[str], *, takes_keys: bool) -> str | None:
    """What to write instead of a flag that there is not: a key of the recipe with the flag's value, or our own flag."""
    name, equals, value = flag.partition("=")
    if not equals:
        value = words[words.index(flag) + 1] if flag in words[:-1] else "VALUE"
    if takes_keys and name in _KEYS:
        return f"{_KEYS[name]}={shlex.quote(value)}"
    ours = _FLAGS.get(name)
    if ours not in known:
        return None
    return ours if ours in _SWITCHES else f"{ours} {shlex.quote(value)}"
