"""Symbolic sizes of axes in ONNX graphs."""
