"""Two devices in one box: which op runs where, what is copied, dropped and computed again. Never imports TVM."""
