from __future__ import annotations

import json
import re

import pytest

from edgetrain.report.html import Markup, breakable, data_block, element, joined


def test_text_is_escaped_and_markup_is_not() -> None:
    assert element("p", "a < b & 'c'", Markup("<b>x</b>")) == "<p>a &lt; b &amp; &#x27;c&#x27;<b>x</b></p>"
    assert joined("<i>", None, ("&", Markup("<br>"))) == "&lt;i&gt;&amp;<br>"


def test_no_attribute_can_be_left() -> None:
    assert element("a", title='"><script>', class_="x", aria_label="y", hidden=True, id=None) == (
        '<a title="&quot;&gt;&lt;script&gt;" class="x" aria-label="y" hidden></a>'
    )


def test_what_is_put_together_with_a_plus_is_text_again_and_so_is_escaped() -> None:
    assert element("p", Markup("<b>") + "<i>") == "<p>&lt;b&gt;&lt;i&gt;</p>"


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "\u2028 & \u2029"])
def test_data_cannot_end_its_element_and_comes_back_as_it_was(text: str) -> None:
    block = data_block("d", {"x": text})
    inside = re.fullmatch(r'<script type="application/json" id="d">(.*)</script>', block, re.DOTALL)
    assert inside is not None
    assert not set("<>&\u2028\u2029") & set(inside[1])
    assert json.loads(inside[1]) == {"x": text}


def test_a_name_may_break_after_its_signs() -> None:
    assert breakable("conv_add<.b") == "conv_<wbr>add&lt;.<wbr>b"
