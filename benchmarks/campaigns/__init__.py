"""What `benchmarks.reliability` tries a great many times, each try compared with what must hold."""
