"""What MkDocs calls while it builds: adds the pages that are written from the code, and leads links to pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# MkDocs loads this file by its path, from an environment where the checkout need not be installed.
sys.path[:0] = [path for path in (str(ROOT), str(ROOT / "tuner")) if path not in sys.path]

from website.links import BASES, to_pages  # noqa: E402
from website.markdown import for_the_site  # noqa: E402
from website.reference import commands, exit_codes, python_interface, recipe_keys, targets  # noqa: E402

_THEIR_WORKER, _OUR_WORKER = "https://unpkg.com/iframe-worker/shim", "style/worker.js"
# The pages that are in no file of `docs/`, by their place on the site.
WRITTEN: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands.page,
    "reference/recipe-keys.md": recipe_keys.page,
    "reference/targets.md": targets.page,
    "reference/exit-codes.md": exit_codes.page,
    "reference/python.md": python_interface.page,
    **{place: (ROOT / base).read_text for place, base in BASES.items()},
}


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of `WRITTEN`, the stylesheet, and what search needs in a folder."""
    from mkdocs.structure.files import File

    for place, text in WRITTEN.items():
        files.append(File.generated(config, place, content=text()))
    for path in sorted((ROOT / "website" / "style").iterdir()):
        files.append(File.generated(config, f"style/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page as MkDocs should read it: its Markdown is that of a repository."""
    place = PurePosixPath(page.file.src_uri)
    return for_the_site(to_pages(markdown, place))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The finished page, with our script in place of the one that the theme loads from elsewhere."""
    from mkdocs.utils import get_relative_url

    return output.replace(_THEIR_WORKER, get_relative_url(_OUR_WORKER, page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page of a missing page, which is shown at any depth."""
    return output_content.replace(_THEIR_WORKER, f"/{_OUR_WORKER}")
