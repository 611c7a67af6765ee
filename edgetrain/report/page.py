"""The frame of every page: head, style, script, and a policy that forbids the page to load anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from edgetrain.report.html import Markup, element, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page with its heading. `name` is its address within the page."""

    name: str
    title: str
    body: Markup
    note: str = ""  # one sentence below the heading


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`kind` is what it is of: "run", "plan", "comparison"."""

    title: str
    kind: str
    lead: Markup  # what a reader sees first, below the title
    sections: tuple[Section, ...]


def to_html(page: Page) -> str:
    """One file that works without any other. The same page gives the same bytes."""
    return document(page.title, content(page), scripts=("page.js",))


def document(title: str, body: Markup, *, scripts: Sequence[str], connects: bool = False) -> str:
    """A whole page. `connects`: its script may ask the server that it came from."""
    code = Markup("\n".join(_asset(name) for name in scripts))
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'" + ("; connect-src 'self'" if connects else "")
    )
    head = (
        element("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(_asset("page.css"))),
    )
    whole = element("html", element("head", *head), element("body", body, element("script", code)), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def content(page: Page) -> Markup:
    """What stands in the body: the title, the lead, where to find what, and the sections."""
    links = (element("a", section.title, href=f"#{section.name}") for section in page.sections)
    return joined(
        element(
            "header",
            element("p", "edgetrain ", element("span", page.kind), class_="kind"),
            element("h1", page.title),
            page.lead,
            element("nav", *links, aria_label="Sections") if len(page.sections) > 2 else None,
        ),
        element("main", *map(_section, page.sections)),
    )


def _section(section: Section) -> Markup:
    return element(
        "section",
        element("h2", section.title, id=f"{section.name}-title"),
        element("p", section.note, class_="note") if section.note else None,
        section.body,
        id=section.name,
        aria_labelledby=f"{section.name}-title",
    )


def _asset(name: str) -> str:
    return (resources.files("edgetrain.report") / "assets" / name).read_text(encoding="utf-8")
