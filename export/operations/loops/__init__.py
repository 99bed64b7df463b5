"""Loops as tf2onnx takes them: what they count, and the lists that they carry and write."""
