"""Quantization of ONNX files: integers, their scales, and the operators that read them."""
