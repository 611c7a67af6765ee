"""Makes the pictures of `docs/images`: the report, a comparison and a plan, as Chromium shows them.

    python -m benchmarks.screenshots                 # trains two short runs, and writes docs/images/*.png
    python -m benchmarks.screenshots --out FOLDER

Needs Chromium (`apt-get install chromium`) and `pip install 'edgetrain[test]'`.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
_MOST_BYTES = 250_000
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What of a page is shown: its top, `height` pixels of it, or the element that `selector` names."""

    name: str
    page: str
    width: int = 1120
    height: int = 1000
    scheme: str = "light"
    selector: str = ""


PICTURES = (
    Picture(name="report", page="runs/digits-small/report.html", height=1180),
    Picture(name="report-mistakes", page="runs/digits-small/report.html", selector="#mistakes"),
    Picture(name="report-classes", page="runs/digits-small/report.html", selector="#classes"),
    Picture(name="report-phone-dark", page="runs/digits-small/report.html", width=390, height=1500, scheme="dark"),
    Picture(name="compare", page="compare.html", height=1100),
    Picture(name="plan", page="plan.html", height=1180),
)
COMMANDS = (
    ("fit", "--budget", "1.1MB", "--out", "runs/digits"),
    ("fit", "--budget", "1MB", "--out", "runs/digits-small"),
    ("fit", "train.learning_rate=0.001", "train.epochs=6", "--out", "runs/digits-slow"),
    ("compare", "runs/digits", "runs/digits-small", "runs/digits-slow", "--out", "compare.html"),
    ("plan", "digits", "model.source=zoo:digits-cnn-bn", "--budget", "1.2MB", "--sweep", "--html", "plan.html"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edgetrain-screenshots-") as folder:
        for words in COMMANDS:
            print("edgetrain", *words)
            run = [sys.executable, "-m", "edgetrain", *words, "--quiet"]
            subprocess.run(run, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        take(Path(folder), out)


def take(folder: Path, out: Path) -> None:
    """Writes every picture. Ends the program where one is larger than a page of the docs should load."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        for picture in PICTURES:
            data = _small(_shot(browser, folder, picture))
            if len(data) > _MOST_BYTES:
                raise SystemExit(f"{picture.name} has {len(data)} bytes, more than {_MOST_BYTES}")
            (out / f"{picture.name}.png").write_bytes(data)
            print(f"{out / picture.name}.png {len(data) // 1000} kB")
        browser.close()


def _shot(browser: Any, folder: Path, picture: Picture) -> bytes:
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        device_scale_factor=1.25,
    )
    page = context.new_page()
    page.goto((folder / picture.page).as_uri())
    data: bytes = page.locator(picture.selector).screenshot() if picture.selector else page.screenshot()
    context.close()
    return data


def _small(data: bytes) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        file = io.BytesIO()
        image.convert("RGB").save(file, format="PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
