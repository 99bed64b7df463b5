"""Passes over the converted graph of an ONNX file."""
