"""What an entry is, what is refused, and that joining two is a matter of neither order nor repetition."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain_tuner.cache.entry import (
    MOST_BYTES,
    MOST_MEASUREMENTS,
    Entry,
    Measurement,
    Provenance,
    Signature,
    merge,
    plain_text,
    read_entry,
)
from edgetrain_tuner.cache.errors import CacheError, EntryError
from edgetrain_tuner.cache.schedules import RuleSchedule
from tests.edgetrain_tuner.cache.entries import entry, measurement
from tests.edgetrain_tuner.cache.strategies import entries


def changed(path: str, value: object) -> str:
    """The text of a whole entry with one value replaced; `...` removes it. Without its id, which would be wrong too."""
    data: dict[str, Any] = json.loads(entry().text)
    del data["id"]
    place: Any = data
    *way, last = path.split(".")
    for key in way:
        place = place[int(key)] if key.isdigit() else place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


@settings(max_examples=60, deadline=None)
@given(entries)
def test_what_is_written_reads_back_to_the_same_bytes(whole: Entry) -> None:
    read = read_entry(whole.text)
    assert read_entry(read.text) == read
    assert read.id == whole.id
    assert read.text.isascii()
    assert "\n" not in read.text


@pytest.mark.parametrize("parameters", [{}, {"space": (2,), **{f"decision-{n}": (64, 8, 16, 64) for n in range(31)}}])
def test_a_schedule_reads_back_short_or_long(parameters: dict[str, tuple[int, ...]]) -> None:
    whole = entry(schedule=RuleSchedule(rule="meta-schedule", parameters=parameters))
    assert read_entry(whole.text) == whole


def test_the_id_is_that_of_the_claim_alone() -> None:
    one = entry()
    other = dataclasses.replace(
        one,
        outcome="slower",
        measurements=(),
        provenance=Provenance(model="", who="", tool=""),
        signature=Signature(key="0" * 64, value="1" * 128),
    )
    assert other.id == one.id
    assert entry(tile=(4, 16)).id != one.id


def test_the_id_does_not_change_between_versions() -> None:
    """A shared cache lives by it: whoever changes this line orphans every entry that exists."""
    assert entry().id == "c36e813317b347c9369c272947725dbd95af839cb2f58db0834688a005b4136b"


def test_the_order_of_keys_and_an_integer_for_a_float_make_no_other_id() -> None:
    data = json.loads(entry().text)
    data["check"] = {"against": "unscheduled", "largest_error": 0}
    del data["id"]
    backwards = json.dumps(dict(reversed(data.items())), indent=1)
    data["check"]["largest_error"] = 0.0
    assert read_entry(backwards).id == read_entry(json.dumps(data)).id


REFUSED: Mapping[str, tuple[str, object, str]] = {
    "unknown key": ("surprise", 1, "`surprise` is not a known key"),
    "unknown key inside": ("workload.code", "import os", "`workload.code` is not a known key"),
    "missing key": ("target", ..., "`target` is missing"),
    "missing key inside": ("target.isa", ..., "`target.isa` is missing"),
    "another format": ("format", "edgetrain.schedule/2", "`format` is"),
    "not an object": ("workload", [1], "`workload` is a list of 1, expected an object"),
    "no hash": ("workload.class", "A" * 64, "`workload.class`"),
    "no instruction set": ("target.isa", "vax", "one of x86-64"),
    "a truth value for a number": ("target.cores", True, "`target.cores` is True, expected a whole number"),
    "a float for a whole number": ("target.cores", 2.0, "`target.cores`"),
    "a negative size": ("workload.dims", [3, -1], "`workload.dims`"),
    "too many sizes": ("workload.dims", [1] * 17, "`workload.dims`"),
    "a huge parameter": ("schedule.parameters", {"tile": [2**31 + 1]}, "`schedule.parameters`"),
    "text for a parameter": ("schedule.parameters", {"tile": ["os.system"]}, "`schedule.parameters`"),
    "a name with a path": ("schedule.rule", "../../rule", "`schedule.rule`"),
    "instructions": ("schedule.instructions", [], "`schedule.instructions` is not a known key"),
    "an error below zero": ("check.largest_error", -1.0, "`check.largest_error`"),
    "an unknown outcome": ("outcome", "great", "`outcome`"),
    "no time at all": ("measurements.0.seconds", 0.0, "`measurements[0].seconds`"),
    "a day that does not exist": ("measurements.0.when", "2026-02-30", "a date that exists"),
    "measurements as an object": ("measurements", {}, "`measurements`"),
    "control characters": ("provenance.who", "\x1b[2J", "`provenance.who`"),
    "half a character": ("provenance.who", "\ud800", "`provenance.who`"),
    "a short signature": ("signature", {"key": "0" * 64, "value": "0"}, "`signature.value`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    path, value, words = REFUSED[name]
    with pytest.raises(EntryError) as caught:
        read_entry(changed(path, value))
    assert words in caught.value.why
    assert caught.value.why.isprintable()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(EntryError):
        read_entry(changed("check.largest_error", 0.125).replace("0.125", word))


@pytest.mark.parametrize(
    "text", ["[" * 4000, '{"a":' * 800, "9" * 4096, "", "null", "[]", b"\xff\xfe", '{"a":1,"a":2}']
)
def test_what_is_no_entry_at_all_is_refused(text: str | bytes) -> None:
    with pytest.raises(EntryError):
        read_entry(text)


def test_every_cut_of_an_entry_is_refused() -> None:
    text = entry().text
    for end in range(len(text)):
        with pytest.raises(EntryError):
            read_entry(text[:end])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_digit_is_noticed_by_the_id(data: st.DataObject) -> None:
    text = entry(outcome="slower", measurements=(), provenance=Provenance(model="", who="", tool="")).text
    places = [index for index, letter in enumerate(text) if letter.isdigit()]
    place = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from([d for d in "0123456789" if d != text[place]]))
    with pytest.raises(EntryError):
        read_entry(text[:place] + digit + text[place + 1 :])


def test_an_entry_over_its_size_is_refused() -> None:
    spaced = entry().text.replace(",", "," + " " * 200)
    with pytest.raises(EntryError, match="more than the 4096"):
        read_entry(spaced)
    long = RuleSchedule(rule="generic", parameters={f"p{n}": (2**31,) * 16 for n in range(20)})
    with pytest.raises(EntryError, match="bytes"):
        read_entry(entry(schedule=long).text)


def test_all_mistakes_are_told_at_once() -> None:
    data = json.loads(changed("outcome", "great"))
    data["target"]["isa"] = "vax"
    data["check"]["largest_error"] = "none"
    with pytest.raises(CacheError) as caught:
        read_entry(json.dumps(data))
    assert all(word in caught.value.why for word in ("`outcome`", "`target.isa`", "`check.largest_error`"))


def test_a_schedule_of_instructions_is_refused() -> None:
    schedule = {"rule": "trace", "instructions": [["GetSBlock", [], ["C", "main"], ["b0"]]], "decisions": []}
    with pytest.raises(EntryError, match=r"schedule\.instructions"):
        read_entry(changed("schedule", schedule))


@settings(max_examples=60, deadline=None)
@given(entries, entries, entries)
def test_merging_is_a_union(a: Entry, b: Entry, c: Entry) -> None:
    a, b, c = (read_entry(dataclasses.replace(x, workload=a.workload).text) for x in (a, b, c))
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    assert read_entry(merge(a, b).text) == merge(a, b)


def test_different_ids_do_not_merge() -> None:
    with pytest.raises(EntryError):
        merge(entry(0), entry(1))


def longest(rule: RuleSchedule) -> Entry:
    """An entry with everything as long as it may be, but for the schedule."""
    many = tuple(
        Measurement(
            seconds=1.2345678901234567e-09,
            default_seconds=1.2345678901234568e-09,
            n=10**6,
            machine=f"{n:016x}",
            when="2026-01-31",
        )
        for n in range(MOST_MEASUREMENTS)
    )
    words = plain_text("w" * 100)
    return entry(
        schedule=rule,
        outcome="faster",
        provenance=Provenance(model=words, who=words, tool=words),
        measurements=many,
        signature=Signature(key="f" * 64, value="f" * 128),
    )


@pytest.mark.parametrize("values", range(0, 17, 2))
def test_no_merge_makes_an_entry_too_long_for_its_readers(values: int) -> None:
    rule = RuleSchedule(rule="generic", parameters={f"p{n}": (2**31,) * values for n in range(12)})
    bare = entry(schedule=rule, measurements=())
    whole = bare
    for one in longest(rule).measurements:
        whole = merge(whole, dataclasses.replace(longest(rule), measurements=(one,)))
    assert 4 <= len(whole.measurements) <= MOST_MEASUREMENTS
    assert len(whole.text) <= MOST_BYTES
    assert read_entry(whole.text) == whole


def test_of_too_many_measurements_the_newest_stay() -> None:
    dates = [f"2026-01-{day:02}" for day in range(1, 31)]
    whole = entry(measurements=())
    for when in dates:
        whole = merge(whole, entry(measurements=(measurement(when=when),)))
    assert [m.when for m in whole.measurements] == dates[-len(whole.measurements) :]
    assert len(whole.measurements) == MOST_MEASUREMENTS


@pytest.mark.parametrize("words", ["plain", "ünïcödé", 'quote" back\\slash', "x" * 200, "new\nline\x00"])
def test_any_words_become_plain_text_that_an_entry_holds(words: str) -> None:
    plain = Provenance(model=plain_text(words), who="", tool="")
    assert read_entry(entry(provenance=plain).text).provenance == plain


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
PLACES = ("workload", "schedule", "schedule.parameters", "measurements", "target.isa", "format", "signature")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PLACES), ANYTHING)
def test_no_value_in_any_place_brings_more_than_a_refusal(path: str, value: object) -> None:
    with contextlib.suppress(EntryError):
        read_entry(changed(path, value))
