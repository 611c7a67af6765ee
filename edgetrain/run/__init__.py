"""Program → RunReport: the training loop, its checkpoints, its log and its report. No TVM and no ONNX here."""
