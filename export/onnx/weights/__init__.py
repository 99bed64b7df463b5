"""The weights of ONNX files: written, read, and compared."""
