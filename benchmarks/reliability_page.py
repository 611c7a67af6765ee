"""Writes what `benchmarks.reliability` found as a page: claims, campaigns, soak, fuzzing, and what is not covered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.campaigns.ground import Result
from benchmarks.reliability_claims import DEFECTS, PROMISES, Claim

_INTRODUCTION = """\
What was tried to lose data, to get in, or to break a promise, how often, and how often it worked. For anyone who
wants to know what can be relied on. `{command}` wrote this page; [security](security.md) says what is protected
against whom."""
_DEFECTS = """\
Each row was wrong once: a hostile tester found it. `tests` counts test cases that passed (and failed, where one
did), `faults` the places where tests made a file operation, an allocation or a process fail, `tries` those of the
campaigns below."""
_PROMISES = "What held from the beginning, tried again."
_CAMPAIGNS = """\
A campaign tries one thing many times, with a seed. `did not hold` counts what it found; a failed command of the
campaign itself counts, too."""
_SOAK = """\
`python -m benchmarks.soak` trains for hours in processes of its own, while they are killed, stopped, given other
budgets and junk, their disk runs full and their clock jumps. Every run has to end with the parameters, results, log
and checkpoint sizes of the same run that nobody disturbed, with documented exit codes, and leave nothing behind."""
_LONG = """\
Two processes train for long. Each pair is a median of the first tenth of the time, after a warm-up, and of the
last: neither memory nor descriptors nor the checkpoint may grow, nor a step cost more of the processor."""
_FUZZ = """\
Inputs that a fuzzer makes up, led by which code they reach, for everything that reads files or requests. A finding
is a crash, a hang or an error that is not documented."""
_NOT_COVERED = """\
- **Real power cuts.** A killed process stands for them, and tests that drop bytes that were not synced. Disks that
  say "synced" before they are have not been tried.
- **Real boards.** Kernels for other processors run in emulators; flash, brown-outs and watchdogs of devices have not
  been tried.
- **Disks over a network.** Locks and renames of NFS and SMB are not tested.
- **Other systems.** Everything here ran on Linux, on the machine named above.
- **Memory errors of the hardware.** Checkpoints notice changed bits, memory does not.
- **Libraries that we use.** Decoders of pictures, Parquet and ONNX have holes of their own; TVM's compiler is not
  fuzzed.
- **More than was tried.** A number of tries without a failure is no proof."""
_SHOWN_WRONG = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test that ran. `points` is at how many places it made something fail."""

    module: str  # with dots, and its class where it has one
    name: str
    outcome: str  # "passed", "failed" or "skipped"
    points: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    cases: Sequence[Case]
    results: Mapping[str, Result]
    commit: str
    day: str
    machine: Mapping[str, Any]
    command: str
    seconds: float
    soak: Any = None  # what `benchmarks.soak --json` wrote
    fuzz: Any = None


def page(content: Page) -> str:
    parts = [
        "# Reliability",
        _INTRODUCTION.format(command=content.command),
        _provenance(content),
        "## What was wrong once",
        _DEFECTS,
        _claims(DEFECTS, content, numbered=True),
        "## What is promised",
        _PROMISES,
        _claims(PROMISES, content, numbered=False),
        "## Campaigns",
        _CAMPAIGNS,
        _table(("campaign", "tries", "did not hold", "of these"), map(_campaign, content.results.items())),
        *_wrong(content.results),
        *_soak(content.soak),
        *_fuzz(content.fuzz),
        "## What is not covered",
        _NOT_COVERED,
    ]
    return "\n\n".join(parts) + "\n"


def matches(test: str, case: Case) -> bool:
    """Whether the test that a claim names is this case, or a file or folder with it."""
    file, _, name = test.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
    is_inside = case.module == module or case.module.startswith(f"{module}.")
    return is_inside and (not name or case.name.partition("[")[0] == name)


def _provenance(content: Page) -> str:
    m = content.machine
    memory = f"{m['memory_bytes'] / 1e9:.0f} GB of memory" if "memory_bytes" in m else ""
    where = ", ".join(
        filter(None, (str(m.get("cpu", "")), f"{m.get('cores')} cores", memory, str(m.get("system", ""))))
    )
    return f"{content.day}, commit `{content.commit}`, {where}. It took {content.seconds / 60:.0f} minutes."


def _claims(claims: Sequence[Claim], content: Page, *, numbered: bool) -> str:
    rows = [
        (*((str(n),) if numbered else ()), claim.holds, claim.tried, *_counts(claim, content))
        for n, claim in enumerate(claims, 1)
    ]
    head = ("#",) if numbered else ()
    return _table((*head, "what holds", "what was tried", "tests", "faults", "tries", "failed"), rows)


def _counts(claim: Claim, content: Page) -> tuple[str, str, str, str]:
    cases = [case for case in content.cases if any(matches(test, case) for test in claim.tests)]
    results = [content.results[name] for name in claim.campaigns if name in content.results]
    passed = sum(case.outcome == "passed" for case in cases)
    skipped = sum(case.outcome == "skipped" for case in cases)
    failed = sum(case.outcome == "failed" for case in cases) + sum(len(result.wrong) for result in results)
    shown = f"{passed:,}{f' ({skipped} skipped)' if skipped else ''}" if cases else "not run"
    points = sum(case.points for case in cases)
    tries = f"{sum(result.tries for result in results):,}" if results else "–"
    return shown, f"{points:,}" if points else "–", tries, f"**{failed}**" if failed else "0"


def _campaign(item: tuple[str, Result]) -> tuple[str, ...]:
    name, result = item
    return name, f"{result.tries:,}", f"**{len(result.wrong)}**" if result.wrong else "0", result.detail


def _wrong(results: Mapping[str, Result]) -> Iterable[str]:
    found = [f"- {name}: {' '.join(line.split())[:300]}" for name, result in results.items() for line in result.wrong]
    if found:
        yield "What did not hold:"
        yield "\n".join(found[:_SHOWN_WRONG])


def _soak(document: Any) -> Iterable[str]:
    if document is None:
        return
    rows = document["rows"]
    short = [row for row in rows if "runs" in row]
    yield "## Soak"
    everything: Mapping[str, Any] = next((row for row in short if row["run"] == "all"), {})
    hours = f"{everything.get('seconds', 0) / 3600:.2f} hours, seed {everything.get('seed')}"
    yield f"{_SOAK}\n\n{hours}. Full disks: {everything.get('disk_pressure', 'unknown')}."
    columns = [name for name in short[0] if name not in ("seconds", "seed", "disk_pressure", "violations")]
    yield _table(columns, ([_number(row.get(name)) for name in columns] for row in short))
    long = [row for row in rows if "steps_per_cpu_s" in row]
    if long:
        yield _LONG
        yield _table(
            ("run", "steps", "seconds", "descriptors", "resident", "steps a second", "steps a second of the processor",
             "checkpoint, least and most", "log, a step", "plans switched", "wrong"),
            map(_long, long),
        )  # fmt: skip
    for line in everything.get("violations", ()):
        yield f"- {' '.join(str(line).split())[:300]}"


def _long(row: Mapping[str, Any]) -> tuple[str, ...]:
    megabytes = " → ".join(f"{n / 1e6:.1f} MB" for n in row["resident_bytes"])
    rates = (" → ".join(f"{n:,.0f}" for n in row[name]) for name in ("steps_per_s", "steps_per_cpu_s"))
    sizes = " – ".join(f"{n / 1e3:.1f} kB" for n in row["checkpoint_bytes"])
    descriptors = " → ".join(str(n) for n in row["descriptors"])
    ends = (f"{row['log_bytes_per_step']:.0f} bytes", str(row["switches"]), str(row["wrong"]))
    return str(row["run"]), f"{row['steps']:,}", f"{row['seconds']:.0f}", descriptors, megabytes, *rates, sizes, *ends


def _fuzz(document: Any) -> Iterable[str]:
    """Whatever of the format is there."""
    readers = document.get("readers", ()) if isinstance(document, Mapping) else ()
    if not readers:
        return
    yield "## Fuzzing"
    seconds = document.get("seconds")
    yield f"{_FUZZ} `python -m tests.fuzz`" + (f" ran for {seconds / 60:.0f} minutes." if seconds else " ran.")
    columns = ("reader", "executions", "features", "findings")
    yield _table(columns, ([_number(reader.get(name)) for name in columns] for reader in readers))


def _number(value: object) -> str:
    match value:
        case None:
            return "–"
        case list() | tuple():
            return str(len(value))
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}"
        case _:
            return str(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
