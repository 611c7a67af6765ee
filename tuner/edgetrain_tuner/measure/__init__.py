"""Measuring schedules: a process of its own compiles, checks and times each candidate beside the default.

`worker` talks to that process and outlives it, `serve` is its loop, `bench` does the work there. How a kernel becomes
machine code is not decided here: whoever starts the process brings a `Builder`.
"""
