"""The page of a run that is going on, served to this machine alone.

`Watch` collects what the training loop tells it, `WatchServer` shows it. Neither touches the engine.
"""
