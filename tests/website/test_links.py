"""Links between files of the repository lead to pages of the site."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from website.links import to_pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("place", "link", "expected"),
    [
        ("cli.md", "[a](recipes.md)", "[a](recipes.md)"),
        ("cli.md", "[a](planner.md#results)", "[a](planner.md#results)"),
        ("how-to/my-table.md", "[a](../recipes.md#keys)", "[a](../recipes.md#keys)"),
        ("cli.md", "[a](../CHANGELOG.md)", "[a](changelog.md)"),
        ("how-to/my-table.md", "[a](../../edgetrain/recipes.py)", "[a](../reference/recipe-keys.md)"),
        ("changelog.md", "[a](docs/coverage.md)", "[a](coverage.md)"),
        ("contributing.md", "[a](LICENSE)", "a"),
        ("tuning.md", "[`seed`](../benchmarks/seed.py)", "`seed`"),
        ("cli.md", "![a](memory-timeline.png)", "![a](memory-timeline.png)"),
        ("cli.md", "[a](https://example.org/b.md)", "[a](https://example.org/b.md)"),
        ("cli.md", "[a](#options)", "[a](#options)"),
    ],
)
def test_a_link_leads_to_the_page_of_the_file(place: str, link: str, expected: str) -> None:
    assert to_pages(link, PurePosixPath(place)) == expected


def test_what_stands_in_a_block_is_left_alone() -> None:
    text = "```md\n[a](../CHANGELOG.md)\n```\n[a](../CHANGELOG.md)\n"
    assert to_pages(text, PurePosixPath("cli.md")) == "```md\n[a](../CHANGELOG.md)\n```\n[a](changelog.md)\n"
