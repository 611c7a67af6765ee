"""Better schedules for a model's kernels: trials of what others found, and a search, in the compiler's process."""
