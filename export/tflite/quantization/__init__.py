"""Quantization of TFLite files: integers, their scales, and the operators that read them."""
