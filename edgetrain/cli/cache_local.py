"""`edgetrain cache` on this machine: ls, show, stats, verify, gc, export, import."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgetrain.cli.cache_trials import recipe_to_try, run_trials, verification_text
from edgetrain.cli.command import table
from edgetrain.cli.console import Console
from edgetrain.cli.trust import trust_of
from edgetrain.errors import DataError, UsageError
from edgetrain.files.regular_file import require_regular
from edgetrain.locate import schedules_path, teams_dir, uses_seed
from edgetrain.units import show_bytes, show_seconds
from edgetrain_tuner.cache.entry import OUTCOMES, Entry
from edgetrain_tuner.cache.jsonl import BadLine, write_lines
from edgetrain_tuner.cache.levels import IMPORTED, SEED_FOLDER, TEAM, USER, Found, Levels, imported_path
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.trust import can_verify, is_genuine

_LEAST_ID = 4
_SHORT_ID = 12
_MOST_TOLD = 10  # bad lines, refused entries


def store_path(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.store or schedules_path()
    return path


@contextlib.contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Levels]:
    seed_folder = SEED_FOLDER if uses_seed() else None
    with Levels.open(user_path=store_path(arguments), teams_folder=teams_dir(), seed_folder=seed_folder) as levels:
        yield levels


def ls(arguments: argparse.Namespace, word: str, console: Console) -> int:
    with opened(arguments) as levels:
        found = [one for one in levels if arguments.level in (None, "all", one.level) and _matches(one.entry, word)]
    found.sort(key=lambda one: (one.entry.workload.name, one.entry.workload.dims, -(one.entry.speedup or 0)))
    if console.as_json:
        console.data(json.dumps([_found_json(one) for one in found]) + "\n")
        return 0
    console.data(listing(found))
    return 0


def show(arguments: argparse.Namespace, word: str, console: Console) -> int:
    if len(word) < _LEAST_ID:
        raise UsageError(f"`{word}` is too short for an id", fix=f"give {_LEAST_ID} digits of it or more")
    with opened(arguments) as levels:
        found = [one for one in levels if one.entry.id.startswith(word)]
    if len(found) != 1:
        ids = ", ".join(one.entry.id[:_SHORT_ID] for one in found[:5])
        raise UsageError(
            f"{len(found)} schedules have an id that begins with `{word}`" + (f": {ids}" if ids else ""),
            fix="`edgetrain cache ls` lists the ids",
        )
    text = json.dumps(_found_json(found[0]), indent=1) + "\n" if console.as_json else details(found[0])
    console.data(text)
    return 0


def stats(arguments: argparse.Namespace, _: str, console: Console) -> int:
    path = store_path(arguments)
    with opened(arguments) as levels:
        everything = [one.entry for one in levels]
        rows = [
            {"level": level.name, "source": level.source, "schedules": sum(1 for _ in level.content)}
            for level in levels.levels
        ]
    counts = {
        "schedules": len(everything),
        "classes": len({entry.workload.class_ for entry in everything}),
        "measurements": sum(len(entry.measurements) for entry in everything),
        "outcomes": _counted(entry.outcome for entry in everything),
        "targets": _counted(f"{entry.target.isa} {entry.target.cpu}".strip() for entry in everything),
        "rules": _counted(f"version {entry.versions.rules}" for entry in everything),
        "bytes": path.stat().st_size,
        "levels": rows,
    }
    console.data(json.dumps(counts) + "\n" if console.as_json else stats_text(counts))
    return 0


def verify(arguments: argparse.Namespace, _: str, console: Console) -> int:
    """Every entry of every level, as a stranger's: form, ranges, id; signatures where they can be checked.

    With `--run` also what they say, on the kernels of a model.
    """
    recipe = recipe_to_try(arguments)
    problems, counts = _objections(arguments)
    report: dict[str, Any] = {**counts, "problems": problems}
    if not console.as_json:
        _tell_objections(problems, counts, console)
    is_good = not problems
    if recipe is not None:
        found = run_trials(recipe, console)
        report["trials"] = found.to_json()
        is_good = is_good and found.is_good
        if not console.as_json:
            console.data(verification_text(found))
    if console.as_json:
        console.data(json.dumps(report) + "\n")
    return 0 if is_good else 1


def _objections(arguments: argparse.Namespace) -> tuple[list[dict[str, str]], dict[str, int]]:
    """What is wrong with which entry, and how many there are."""
    trust = trust_of(arguments)
    problems: list[dict[str, str]] = []
    counts = dict.fromkeys(("schedules", "signed", "unchecked"), 0)
    with opened(arguments) as levels:
        for level in levels.levels:
            if isinstance(level.content, Store):
                damaged = level.content.damaged_rows()
                problems += [{"id": i, "level": level.name, "why": "it was changed or damaged"} for i in damaged]
            for entry in level.content:
                counts["schedules"] += 1
                counts["signed"] += entry.signature is not None
                counts["unchecked"] += entry.signature is not None and not can_verify()
                objection = trust.objection(entry) if level.name in (IMPORTED, TEAM) else None
                if entry.signature is not None and can_verify() and not is_genuine(entry):
                    objection = "its signature does not match its content"
                if objection:
                    problems.append({"id": entry.id, "level": level.name, "why": objection})
    return problems, counts


def _tell_objections(problems: Sequence[dict[str, str]], counts: dict[str, int], console: Console) -> None:
    unchecked = f", {counts['unchecked']} not checked: pip install 'edgetrain[sign]'" if counts["unchecked"] else ""
    console.data(f"{_schedules(counts['schedules'])}, {counts['signed']} signed{unchecked}\n")
    for problem in problems:
        console.data(f"bad {problem['id'][:_SHORT_ID]} ({problem['level']}): {problem['why']}\n")
    if problems:
        console.say("hint: `edgetrain cache gc` removes what cannot be read; `cache pull URL --forget` drops a remote")


def gc(arguments: argparse.Namespace, _: str, console: Console) -> int:
    """Cleans up what was found here, and what was imported."""
    own = store_path(arguments)
    paths = [own, *(path for path in [imported_path(own)] if path.exists())]
    removed = left = 0
    for path in paths:
        with Store.open(path) as store:
            removed += store.gc(_kept(store, arguments))
            left += len(store)
    report = {"removed": removed, "schedules": left, "bytes": sum(path.stat().st_size for path in paths)}
    text = f"removed {_schedules(removed)}; {left} left in {show_bytes(report['bytes'])}\n"
    console.data(json.dumps(report) + "\n" if console.as_json else text)
    return 0


def _kept(store: Store, arguments: argparse.Namespace) -> Callable[[Entry], bool]:
    kept = _best(store, arguments.keep_best) if arguments.keep_best else None
    return lambda entry: (
        (kept is None or entry.id in kept)
        and not (arguments.drop_failed and entry.outcome == "failed")
        and entry.versions.rules >= (arguments.rules or 0)
    )


def export(arguments: argparse.Namespace, word: str, console: Console) -> int:
    level = arguments.level or USER
    with opened(arguments) as levels:
        entries = [one.entry for one in levels if level in ("all", one.level)]
    if word == "-":
        for entry in entries:
            console.data(entry.text + "\n")
        return 0
    count = write_lines(Path(word), entries)
    report = {"file": word, "schedules": count}
    console.data(json.dumps(report) + "\n" if console.as_json else f"exported {_schedules(count)} to {word}\n")
    return 0


def import_(arguments: argparse.Namespace, word: str, console: Console) -> int:
    path = Path(word)
    require_regular(path, DataError)
    if not path.is_file():
        raise DataError(f"there is no file `{word}`", fix="give a file that `edgetrain cache export FILE` wrote")
    with Store.open(imported_path(store_path(arguments))) as store:
        report = store.import_jsonl(path, refuse=trust_of(arguments).objection)
    good = report.new + report.changed + report.known
    if report.bad and not good:
        raise DataError(
            f"`{word}` holds no schedule that can be imported",
            why=f"line {report.bad[0].line}: {report.bad[0].why}",
            fix="give a file that `edgetrain cache export FILE` wrote",
        )
    if console.as_json:
        console.data(json.dumps(dataclasses.asdict(report)) + "\n")
        return 0
    refused = f", {len(report.bad)} lines refused" if report.bad else ""
    console.data(f"imported {_schedules(good)}: {report.new} new, {report.changed} updated{refused}\n")
    _tell_lines(report.bad, console)
    return 0


def listing(found: Sequence[Found]) -> str:
    """A line for each: id, level, target, what came of it, kernel."""
    rows = []
    for one in found:
        entry = one.entry
        gain = f"{entry.speedup:.2f}x" if entry.speedup else "-"
        target = f"{entry.target.isa} {entry.target.cpu}".strip()
        dims = "x".join(map(str, entry.workload.dims))
        rows.append((one.entry.id[:_SHORT_ID], one.level, target, entry.outcome, gain, entry.workload.name, dims))
    if not rows:
        return "no schedules\n"
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def details(found: Found) -> str:
    entry = found.entry
    target, schedule = entry.target, dict(entry.schedule.to_json())
    rule = schedule.pop("rule")
    rows = [
        ("id", entry.id),
        ("kernel", f"{entry.workload.name}, {'x'.join(map(str, entry.workload.dims))}, {entry.workload.dtype}"),
        ("class", entry.workload.class_),
        (
            "target",
            f"{target.isa} {target.cpu}, {target.vector_registers} registers of {target.vector_bits} bits, "
            f"{target.cores} cores, {show_bytes(target.cache_bytes)} of cache",
        ),
        ("schedule", f"{rule} {json.dumps(schedule.get('parameters', schedule))}"),
        ("versions", f"tvm {entry.versions.tvm}, rules {entry.versions.rules}"),
        ("check", f"largest error {entry.check.largest_error:g} against the {entry.check.against} kernel"),
        ("outcome", entry.outcome + (f", {entry.speedup:.2f} times as fast" if entry.speedup else "")),
        *(
            (
                "measured",
                f"{show_seconds(m.seconds)} against {show_seconds(m.default_seconds)}, {m.n} runs each, {m.when}, "
                f"machine {m.machine}",
            )
            for m in entry.measurements
        ),
        ("found by", ", ".join(filter(None, dataclasses.astuple(entry.provenance))) or "nobody says"),
        ("signed by", entry.signature.key if entry.signature else "nobody"),
        ("level", f"{found.level}: {found.source}"),
    ]
    return table(rows, indent=0) + "\n"


def stats_text(counts: dict[str, Any]) -> str:
    rows = [
        ("schedules", f"{counts['schedules']} for {counts['classes']} kernel classes"),
        ("measurements", str(counts["measurements"])),
        *(
            (name, ", ".join(f"{number} {word}" for word, number in counts[name].items()) or "none")
            for name in ("outcomes", "targets", "rules")
        ),
        ("size", show_bytes(counts["bytes"])),
        *((row["level"], f"{row['schedules']} in {row['source']}") for row in counts["levels"]),
    ]
    return table(rows, indent=0) + "\n"


def _best(store: Store, number: int) -> frozenset[str]:
    """Of each kernel (class and sizes) on each target the fastest; failures are kept out only by `--drop-failed`."""
    groups: dict[object, list[Entry]] = collections.defaultdict(list)
    for entry in store:
        groups[entry.workload.class_, entry.workload.dims, entry.workload.dtype, entry.target].append(entry)
    for group in groups.values():
        group.sort(key=lambda entry: (-OUTCOMES.index(entry.outcome), -(entry.speedup or 0.0), entry.id))
    return frozenset(entry.id for group in groups.values() for entry in group[:number])


def _matches(entry: Entry, word: str) -> bool:
    texts = (entry.workload.name, entry.schedule.rule, entry.target.isa, entry.target.cpu, entry.provenance.model)
    return any(word in text for text in texts) or entry.id.startswith(word) or entry.workload.class_.startswith(word)


def _found_json(found: Found) -> dict[str, object]:
    return {"level": found.level, "source": found.source, "speedup": found.entry.speedup, **found.entry.to_json()}


def _counted(words: Iterator[str]) -> dict[str, int]:
    return dict(sorted(collections.Counter(words).items()))


def _schedules(count: int) -> str:
    return f"{count} schedule{'' if count == 1 else 's'}"


def _tell_lines(bad: Sequence[BadLine], console: Console) -> None:
    for line in bad[:_MOST_TOLD]:
        console.warn(f"line {line.line}: {line.why}")
    if len(bad) > _MOST_TOLD:
        console.tell(f"and {len(bad) - _MOST_TOLD} more")
