"""Measurements by the operating system and the hardware: memory of this process, joules, the speed of a disk."""
