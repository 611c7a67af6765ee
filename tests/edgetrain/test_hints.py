"""No hint fails when it is pasted: those in the source, and some from the error to the command that works."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgetrain
from tests.hints import problems

PACKAGE = Path(edgetrain.__file__).parent


# What an expression puts in.
_LIKELY = {"verb.name": "fit", "prog": "edgetrain fit", "show_bytes": "2kB", "least + 1": "3"}


def likely(node: ast.expr) -> str:
    """What a value that is put in looks like: by its expression, else `2`, which is a name and a number."""
    source = ast.unparse(node)
    return next((text for mark, text in _LIKELY.items() if mark in source), "2")


def texts(node: ast.expr) -> Iterator[str]:
    """What an expression can say, with likely values put in."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else likely(part) for part in values)
        case ast.IfExp(body=body, orelse=orelse):
            yield from texts(body)
            yield from texts(orelse)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            yield from (one + other for one in texts(left) for other in texts(right))


def hints_in_the_source() -> list[tuple[str, str]]:
    """`path:line` and text of every `fix=...`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "fix":
                place = f"{path.relative_to(PACKAGE)}:{node.value.lineno}"
                found += [(place, text) for text in texts(node.value)]
    return found


def test_no_hint_in_the_source_fails_when_it_is_pasted() -> None:
    found = hints_in_the_source()
    assert len(found) > 150
    wrong = [f"{place}: {problem}" for place, text in found for problem in problems(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("fix", "told"),
    [
        ("set `model.classes = 3`", "write `key=value`"),
        ("set `model.clases=3`", "not a known key"),
        ("set `train.batch=many`", "expected a whole number"),
        ("try `edgetrain train digits`", "there is no verb `train`"),
        ("try `edgetrain fit --bugdet 1MB`", "has no flag"),
        ("try `edgetrain fit --budget much`", "is not a size"),
        ("try `edgetrain fit --out 'runs`", "is no shell command"),
        ("try `edgetrain cache pul URL`", "cannot `pul`"),
        ("add `--bugdet 1MB`", "fits no verb"),
        ("leave out --bugdet", "no verb has the flag"),
        ("lower train.batches", "is no key of a recipe"),
        ("lower `train.batch=`", "expected a whole number"),
    ],
)
def test_a_hint_that_fails_is_noticed(fix: str, told: str) -> None:
    assert any(told in problem for problem in problems(fix)), problems(fix)


@pytest.mark.parametrize(
    "fix",
    [
        "add `train.batch=4 train.accumulate=2`, or `'data.resize=[32, 32]'`",
        "go on with `edgetrain fit digits --resume --out 'runs/my digits'`",
        "give it `--budget 671.941kB`",
        "install it with `pip install --no-deps something`",
        "rename `model.c` and data.npz",
    ],
)
def test_a_hint_that_works_is_let_through(fix: str) -> None:
    assert problems(fix) == []
