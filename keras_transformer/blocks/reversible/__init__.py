"""Reversible blocks, whose activations are recomputed from their outputs."""
