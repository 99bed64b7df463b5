"""Rewrites of ONNX graphs of fixed shapes into what accelerators compute, a file for each."""
