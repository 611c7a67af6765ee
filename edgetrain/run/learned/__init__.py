"""What a trained model gets right and wrong on data that it was not trained on.

`observe` streams over the evaluation part and keeps counts and the few worst samples, never the outputs. `Learned` is
what it found: plain data, written as `learned.json`.
"""
