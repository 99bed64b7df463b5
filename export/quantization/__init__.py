"""Quantization: options, evaluation and sensitivity."""
