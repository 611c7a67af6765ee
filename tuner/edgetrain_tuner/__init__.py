"""Schedules for training kernels: rules without search, and later search and a shared cache. Never imports edgetrain."""
