"""What an op costs: seconds and joules, from a device profile or from a measurement."""
