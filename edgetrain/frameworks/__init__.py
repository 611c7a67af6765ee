"""Models of other libraries as they are in memory: the way in, and the way back with trained weights.

A library is imported only where one of its objects is given. The files that exporters write are `edgetrain/model/`'s.
"""
