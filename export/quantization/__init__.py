"""Quantization: its options, and the integers and scales that files keep."""
