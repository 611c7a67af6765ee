"""Links between files of the repository become links between pages of the site.

A page in `docs/` links to files beside it, and to files outside `docs/`, such as sources and the changelog. Some of the
latter have a page on the site. The others are named without a link: the site does not know where its sources are read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

DOCS = "docs"
# Pages whose text is a file outside `docs/`: links in it count from that file.
BASES: Mapping[str, str] = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
# Where on the site a reader finds what a file of the repository says.
_PAGES: Mapping[str, str] = {
    **{base: place for place, base in BASES.items()},
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "edgetrain/__init__.py": "reference/python.md",
    "edgetrain/cli/entry.py": "reference/commands.md",
    "edgetrain/errors.py": "reference/exit-codes.md",
    "edgetrain/recipes.py": "reference/recipe-keys.md",
    "targets/README.md": "reference/targets.md",
}
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def to_pages(markdown: str, place: PurePosixPath) -> str:
    """The text of the page at `place`, its path on the site, with links that lead to pages and files of the site."""

    def replaced(match: re.Match[str]) -> str:
        mark, text, path, anchor = match.groups(default="")
        if ":" in path:
            return match[0]
        found = site_path(path, place)
        return f"{mark}[{text}]({found}{anchor})" if found else text

    return outside_fences(markdown, lambda part: _LINK.sub(replaced, part))


def site_path(path: str, place: PurePosixPath) -> str | None:
    """Where a link in the file behind `place` leads, relative to `place`; None where the site has no such page."""
    source = BASES.get(str(place), f"{DOCS}/{place}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    on_site = _PAGES.get(target) or (target.removeprefix(f"{DOCS}/") if target.startswith(f"{DOCS}/") else None)
    return posixpath.relpath(on_site, str(place.parent)) if on_site else None


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The text with `change` applied to all that is not in a fenced block."""
    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else change(part) for part in parts)
