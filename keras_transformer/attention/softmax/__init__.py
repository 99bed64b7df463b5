"""Softmax attention over parts of the keys: merged, recomputed, or by tiles."""
