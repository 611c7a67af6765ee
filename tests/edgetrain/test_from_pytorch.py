"""What the page "From PyTorch, Keras, scikit-learn" tells people to type, typed."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from edgetrain.model.export_warnings import EXPORT_LINE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-pytorch.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What an export needs beside the modules that a block imports.
_NEEDED_BY = {"dynamo=True": "onnxscript"}


def sections() -> dict[str, str]:
    _, *parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    blocks = {part.splitlines()[0]: "\n".join(_BLOCK.findall(part)) for part in parts}
    return {title: code for title, code in blocks.items() if code}


def missing(code: str) -> list[str]:
    tree = ast.walk(ast.parse(code))
    named = {a.name for node in tree if isinstance(node, ast.Import) for a in node.names}
    named |= {node.module or "" for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)}
    named |= {package for text, package in _NEEDED_BY.items() if text in code}
    packages = {name.partition(".")[0] for name in named}
    return sorted(package for package in packages if importlib.util.find_spec(package) is None)


def test_the_page_has_code_for_each_library() -> None:
    assert list(sections()) == ["A PyTorch module", "A PyTorch file", "scikit-learn", "Keras"]


def test_the_line_that_warnings_name_keeps_batch_norm_by_the_flags_of_the_page() -> None:
    flags = re.findall(r"\w+=\w+", EXPORT_LINE)
    assert flags == ["dynamo=True", "optimize=False"]
    assert ", ".join(flags) in PAGE.read_text(encoding="utf-8")


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore")  # of the exporters, on themselves
@pytest.mark.parametrize("title", sections())
def test_the_code_runs(title: str, tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = sections()[title]
    if lacking := missing(code):
        pytest.skip(f"pip install {' '.join(lacking)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    exec(compile(code, f"{PAGE.name}: {title}", "exec"), {"__name__": "page"})
    assert list((tmp_path / "runs").iterdir())
