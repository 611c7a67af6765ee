"""What the operating system and the hardware say: memory of this process, joules, the speed of a disk."""
