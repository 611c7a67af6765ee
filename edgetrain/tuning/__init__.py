"""Measures a machine for the user: faster schedules, verified entries of others, rates for the planner.

The commands behind `edgetrain tune`, `cache verify` and `targets calibrate`, with their reports. The search itself
is the compiler's (`compiler/search`); schedules and rules are `edgetrain_tuner`'s.
"""
