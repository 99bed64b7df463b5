"""Rewrite rules for converted ONNX graphs."""
