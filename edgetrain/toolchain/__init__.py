"""C compilers and linkers for every target, and archives of objects.

The tools belong here, not what is built with them: a program's library is made in `program`, a trial's in
`compiler/measure`.
"""
