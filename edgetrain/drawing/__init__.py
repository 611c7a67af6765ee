"""Pictures without a plotting library: shapes as data, written as SVG, or with Pillow as PNG.

How to draw, not what: a picture of a plan is composed in `planner`, one of a run in `run/files`.
"""
