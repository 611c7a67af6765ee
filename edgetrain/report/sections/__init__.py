"""The parts of a page: each function takes data and gives HTML."""
