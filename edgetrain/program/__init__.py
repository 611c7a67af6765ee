"""A training graph, its kernels and a plan become a program: a C driver, linked with the runtime into one library.

The driver's text, the library, the program folder and its manifest belong here. Kernels come compiled (`compiler`); the
C sources that all programs share are in `runtime`.
"""
