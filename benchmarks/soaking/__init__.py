"""What `benchmarks.soak` does to runs, and what it looks at afterwards."""
