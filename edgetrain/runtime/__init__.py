"""The C runtime that every program carries: arena, threads, paging, and the interface that its host calls.

C sources without TVM and without `malloc` after the start. What is generated for one model is the driver
(`program/emit_c.py`), not here.
"""
