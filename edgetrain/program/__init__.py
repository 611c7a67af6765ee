"""Graph and plan become a program: kernels as plain C functions, a generated driver, and the small C runtime."""
