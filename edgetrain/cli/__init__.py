"""The command line: one file for each verb. Data goes to standard output, talk to standard error.

Flags, help texts, progress and the wording of errors belong here. What a verb does belongs to `pipeline`, `tuning` or
`run`: nothing here compiles, plans or trains.
"""

from edgetrain.cli.entry import main

__all__ = ["main"]
