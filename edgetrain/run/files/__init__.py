"""The run folder: checkpoints, the report, the trained model, and how a finished run is opened again."""
