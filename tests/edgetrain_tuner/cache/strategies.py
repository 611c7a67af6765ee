"""Entries of a few ids that differ in what a merge has to join."""

from __future__ import annotations

from hypothesis import strategies as st

from edgetrain_tuner.cache.entry import Provenance
from tests.edgetrain_tuner.cache.entries import entry, measurement

measurements = st.builds(
    measurement,
    st.sampled_from([1e-3, 1.25e-3, 0.1 + 0.2]),
    machine=st.integers(0, 3),
    when=st.sampled_from(["2025-12-01", "2026-01-31", "2026-02-01"]),
    n=st.integers(1, 3),
)
entries = st.builds(
    entry,
    st.integers(0, 3),
    outcome=st.sampled_from(["faster", "slower", "failed"]),
    measurements=st.lists(measurements, max_size=12).map(tuple),
    provenance=st.builds(
        Provenance, model=st.sampled_from(["a", "b"]), who=st.sampled_from(["", "ada"]), tool=st.just("edgetrain")
    ),
)
