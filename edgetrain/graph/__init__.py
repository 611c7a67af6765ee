"""A `Model` becomes a `TrainGraph`: loss, backward pass and updates in one function, then plain data."""
