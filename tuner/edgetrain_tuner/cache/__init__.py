"""Schedules that were found once, kept and shared: the entry, its store, its levels, its remotes.

Nothing here imports TVM or edgetrain: planning processes read it, and a server that shares it needs neither.
"""
