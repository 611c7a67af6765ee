"""Schedules that TVM's MetaSchedule writes: its design spaces, their decisions as data, and what we ask of the code.

The rule proposes nothing by itself; the search that finds good decisions is `edgetrain_tuner.deep`. Our own rules are
not written this way and are not here.
"""
