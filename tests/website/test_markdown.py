"""The Markdown of the repository becomes what MkDocs reads."""

from __future__ import annotations

import pytest

from website.markdown import for_the_site


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n  - b\n    c\n", "- a\n    - b\n    c\n"),
        ("1. a\n   - b\n", "1. a\n    - b\n"),
        ("text\n- a\n- b\n", "text\n\n- a\n- b\n"),
        ("- a\n  goes on\n- b\n", "- a\n  goes on\n- b\n"),
        ("| `a\\|b` | c\\|d |\n", "| `a|b` | c\\|d |\n"),
        ("```sh\ntext\n- a\n  - b\n```\n", "```sh\ntext\n- a\n  - b\n```\n"),
    ],
)
def test_lists_and_tables_are_written_as_python_markdown_reads_them(text: str, expected: str) -> None:
    assert for_the_site(text) == expected
