"""Biases and embeddings of relative positions."""
