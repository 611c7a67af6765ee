"""What an op costs: seconds and joules, modelled from a device's rates, or measured.

Costs only: which ops run is the planner's business, and a device's numbers are the targets'.
"""
