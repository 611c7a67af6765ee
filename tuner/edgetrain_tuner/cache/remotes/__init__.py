"""Places that share entries, behind one protocol: one file for each kind."""
