"""The pages as a person sees them, in the system's Chromium: nothing complains, nothing overflows, everything answers.

Pictures of every page go to the folder that `EDGETRAIN_ARTIFACTS` names, else to the test's own.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.planner.explain import explain
from edgetrain.planner.make_plan import smallest_plan
from edgetrain.planner.plan import Budget
from edgetrain.planner.sweep import sweep
from edgetrain.report.compare_page import compare_page
from edgetrain.report.live.server import WatchServer
from edgetrain.report.live.watch import Watch
from edgetrain.report.operations import operations
from edgetrain.report.page import Page, to_html
from edgetrain.report.plan_page import plan_page
from edgetrain.report.run_page import run_page
from edgetrain.report.run_record import read_run
from edgetrain.run.learned.class_outcomes import ConfusionTally
from tests.edgetrain.planner.training_graphs import chain, unit_costs
from tests.edgetrain.report.run_folders import HOSTILE, learned_classes, learned_values, write_run

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
DESKTOP, PHONE = (1200, 900), (390, 844)


def run_of_classes(folder: Path) -> Page:
    return run_page(read_run(write_run(folder / "classes", learned=learned_classes())))


def run_of_values(folder: Path) -> Page:
    return run_page(read_run(write_run(folder / "values", learned=learned_values())))


def comparison(folder: Path) -> Page:
    other = {"name": HOSTILE, "metric": "accuracy", "train": {"epochs": HOSTILE}}
    runs = [write_run(folder / "one"), write_run(folder / "another", recipe=other, steps=60, losses=(2.0, 1.0))]
    return compare_page([read_run(run) for run in runs])


def plan(folder: Path) -> Page:
    graph = chain(12)
    costs = {"step": unit_costs(graph)}
    least = smallest_plan(graph, Budget(), costs)
    found = operations(graph, least, costs, None)
    points = tuple(sweep(graph, costs))
    return plan_page(graph, least, explain(graph, least), found, sweep=points, text=HOSTILE)


PAGES: dict[str, Callable[[Path], Page]] = {
    "report": run_of_classes,
    "report-values": run_of_values,
    "compare": comparison,
    "plan": plan,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'edgetrain[test]'")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()


@contextmanager
def shown(browser: Any, address: str, size: tuple[int, int], scheme: str = "light") -> Iterator[Any]:
    """The page, in a window of its own. Fails at the end where the browser complained about anything."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []

    def refuse(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", lambda message: complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    page.on("dialog", refuse)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    yield page
    foreign = [url for url in requests if not url.startswith((address, "data:"))]
    context.close()
    assert complaints == []
    assert foreign == []


def written(name: str, folder: Path) -> str:
    path = folder / f"{name}.html"
    path.write_text(to_html(PAGES[name](folder)), encoding="utf-8")
    return path.as_uri()


def keep_picture(page: Any, name: str, folder: Path) -> None:
    artifacts = Path(os.environ.get("EDGETRAIN_ARTIFACTS") or folder / "artifacts")
    artifacts.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=artifacts / f"{name}.png", full_page=True)


def brightness(color: str) -> float:
    """Of `rgb(r, g, b)`, from 0 to 1, as contrast is computed (WCAG 2)."""
    values = [int(value) / 255 for value in re.findall(r"\d+", color)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def style_of(page: Any, selector: str, name: str) -> str:
    return str(page.evaluate("([s, n]) => getComputedStyle(document.querySelector(s))[n]", [selector, name]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_the_browser_has_nothing_to_say(
    browser: Any, tmp_path: Path, name: str, size: tuple[int, int], scheme: str
) -> None:
    with shown(browser, written(name, tmp_path), size, scheme) as page:
        wide = page.evaluate("document.documentElement.scrollWidth")
        keep_picture(page, f"{name}-{size[0]}-{scheme}", tmp_path)
        assert wide <= size[0]
        assert page.evaluate("document.querySelectorAll('main section').length") >= 3
        background = brightness(style_of(page, "body", "backgroundColor"))
        assert background > 0.8 if scheme == "light" else background < 0.05


def test_the_confusions_of_ten_classes_fit_a_phone(browser: Any, tmp_path: Path) -> None:
    names = tuple("0123456789")
    tally = ConfusionTally(len(names))
    tally.add(np.arange(500) % 10, np.arange(500) // 3 % 10)
    learned = replace(learned_classes(), class_names=names, classes=tally.finish(names))
    path = tmp_path / "ten.html"
    path.write_text(to_html(run_page(read_run(write_run(tmp_path / "ten", learned=learned)))), encoding="utf-8")
    with shown(browser, path.as_uri(), PHONE) as page:
        hidden = "(matrix) => matrix.scrollWidth - matrix.parentElement.clientWidth"
        assert page.locator(".matrix").evaluate(hidden) <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser: Any, tmp_path: Path, scheme: str) -> None:
    with shown(browser, written("report", tmp_path), DESKTOP, scheme) as page:
        surface = brightness(style_of(page, "section", "backgroundColor"))
        for selector in ("h2", ".note", ".bad", ".good", "summary", "td", "figcaption small", ".plot .y"):
            text = brightness(style_of(page, selector, "color"))
            contrast = (max(text, surface) + 0.05) / (min(text, surface) + 0.05)
            assert contrast >= 4.5, selector


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_timeline_tells_what_is_under_the_pointer(browser: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    with shown(browser, written("report", tmp_path), size) as page:
        area = page.locator("#memory .plot .area")
        area.scroll_into_view_if_needed()
        tip = area.locator(".tip")
        assert not tip.is_visible()
        box = area.bounding_box()
        for share, expected in ((0.01, "1. compute f0"), (0.5, "in memory"), (0.99, "in memory")):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + 40)
            assert expected in tip.inner_text()
            around = tip.bounding_box()
            assert around["x"] >= 0
            assert around["x"] + around["width"] <= size[0]
        page.mouse.move(0, 0)
        assert not tip.is_visible()


def test_the_timeline_is_read_with_arrow_keys_too(browser: Any, tmp_path: Path) -> None:
    with shown(browser, written("report", tmp_path), DESKTOP) as page:
        area = page.locator("#memory .plot .area")
        area.focus()
        assert style_of(page, "#memory .plot .area", "outlineStyle") != "none"
        area.press("Home")
        assert "1. compute f0" in area.locator(".tip").inner_text()
        area.press("ArrowRight")
        assert "2. compute f1" in area.locator(".tip").inner_text()
        area.press("Escape")
        assert not area.locator(".tip").is_visible()


def test_every_picture_and_chart_has_words(browser: Any, tmp_path: Path) -> None:
    with shown(browser, written("report", tmp_path), DESKTOP) as page:
        assert page.evaluate("[...document.images].every((each) => each.alt && each.naturalWidth)")
        labels = page.evaluate("[...document.querySelectorAll('.area')].map((each) => each.ariaLabel)")
        assert len(labels) == 4
        assert all(label and len(label) > 20 for label in labels)


def test_nothing_moves_while_the_page_loads(browser: Any, tmp_path: Path) -> None:
    with shown(browser, written("report", tmp_path), PHONE) as page:
        moved = page.evaluate(
            """() => new Promise((done) => {
                let sum = 0;
                new PerformanceObserver((list) => { for (const each of list.getEntries()) sum += each.value; })
                  .observe({ type: "layout-shift", buffered: true });
                requestAnimationFrame(() => requestAnimationFrame(() => done(sum)));
            })"""
        )
        assert moved == 0


def test_a_page_prints_in_light_colours_with_everything_open(browser: Any, tmp_path: Path) -> None:
    with shown(browser, written("report", tmp_path), DESKTOP, "dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert brightness(style_of(page, "body", "backgroundColor")) == pytest.approx(1)
        assert brightness(style_of(page, "body", "color")) < 0.05
        assert page.evaluate("[...document.querySelectorAll('details')].every((each) => each.open)")


def test_a_run_is_followed_to_its_end_and_a_stranger_is_not_let_in(browser: Any, tmp_path: Path) -> None:
    watch = Watch(tmp_path, name=HOSTILE, budget_bytes=2_000_000)
    server = WatchServer(watch)
    server.start()
    with shown(browser, server.address, PHONE, "dark") as page:
        page.get_by_text("Preparing").wait_for()
        watch.on_train_begin({"step": 0, "steps": 100, "epochs": 2})
        for step in range(1, 51):
            watch.on_step_end(step, {"loss": 2.0 / step, "learning_rate": 0.1, "seconds": 0.01, "epoch": 1})
        watch.on_epoch_end(1, {"loss": 0.5, "validation_loss": 0.4, "validation_accuracy": 0.75})
        page.get_by_text("after epoch 1").wait_for()
        keep_picture(page, "live-390-dark", tmp_path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert page.locator(".plot svg").count() == 2
        server.close()  # tells the page before it goes
        page.get_by_text("Ended").wait_for()
        assert page.locator(".plot svg").count() == 2
