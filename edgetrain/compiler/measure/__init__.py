"""Single kernels as machine code, run and timed: here, in a process that may crash, or on a device through a runner."""
