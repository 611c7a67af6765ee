"""Schedules for training kernels: rules that need no search, a search, and a cache. It never imports edgetrain."""
