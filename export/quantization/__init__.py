"""Quantized exports: options, evaluation and sensitivity."""
