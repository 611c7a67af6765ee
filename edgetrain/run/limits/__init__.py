"""Memory limits that change while a run goes on, and the plans that it can switch to."""
