"""Schedules for training kernels: rules that need no search. A library of its own: it never imports edgetrain."""
