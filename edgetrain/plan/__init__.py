"""TrainGraph → Plan: which tensors to keep, recompute or page, and where each one lies. Never imports TVM."""
