"""An ONNX file becomes a `Model`: a Relax function, its parameters and the specs of its inputs."""
