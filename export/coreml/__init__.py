"""Core ML programs: written from the ONNX graphs of a bundle, operator by operator, and computed from the written files."""
