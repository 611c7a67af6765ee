"""The built site: complete, strict, and without a request to anywhere."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"([^\"]+)|<link[^>]*\bhref=\"([^\"]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("building the site needs `pip install -e '.[docs]'`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = [one or other for one, other in LOADED.findall(page.read_text(encoding="utf-8"))]
        assert loaded
        assert not [address for address in loaded if "//" in address and not address.startswith("data:")], page


def test_every_page_of_docs_and_every_written_page_is_there(site: Path) -> None:
    from website.hooks import WRITTEN

    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    for page in (*pages, *WRITTEN):
        assert (site / re.sub(r"(README|(\w[\w-]*))\.md$", lambda m: f"{m[2] or 'index'}.html", page)).is_file(), page


def test_a_page_shows_no_mark_that_was_meant_for_markdown(site: Path) -> None:
    """Links that were not recognised, and code blocks that were not closed."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code|script).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "```" not in text, page
        assert not re.search(r"\]\([\w./#-]+\)", text), page


def test_the_search_of_a_page_in_a_folder_finds_a_target(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs `pip install playwright`")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium: `apt-get install -y chromium`")
    said: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as started:
        page = started.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "how-to" / "my-table.html").as_uri())
        page.locator("input.md-search__input").click()
        page.keyboard.type("cortex")
        found = page.locator(".md-search-result__item a").first
        found.wait_for()
        address = found.get_attribute("href")
        page.context.browser.close()
    assert address is not None
    assert address.startswith(site.as_uri())
    assert not said
    assert not [url for url in asked if url.startswith("http")]
