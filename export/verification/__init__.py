"""Comparison of every artifact with the Keras model, in its own runtime."""
