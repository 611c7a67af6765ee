"""The command line: one file per verb. Data goes to standard output, talk to standard error."""

from edgetrain.cli.entry import main

__all__ = ["main"]
