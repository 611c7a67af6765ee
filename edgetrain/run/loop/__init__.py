"""The training loop and all that it asks: batches, rates, metrics, early stopping, the log."""
