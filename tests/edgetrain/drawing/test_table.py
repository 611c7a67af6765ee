from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from edgetrain.drawing.table import to_html_table

_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co", "Cf")))


@given(_TEXT, st.lists(st.tuples(_TEXT, _TEXT), max_size=4))
def test_whatever_a_name_holds_is_text_and_never_markup(caption: str, rows: list[tuple[str, str]]) -> None:
    table = ElementTree.fromstring(to_html_table(caption, rows))
    assert (table.findtext("caption") or "") == caption
    found = [tuple(cell.text or "" for cell in row) for row in table.iter("tr")]
    assert found == rows
