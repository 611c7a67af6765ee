"""An ONNX file becomes a `Model`: a Relax function, its parameters and the specs of its inputs.

Reading, repairing and importing models belong here, and the models that come with edgetrain. Nothing here knows that
the model will be trained. Runs in the compiler's process.
"""
