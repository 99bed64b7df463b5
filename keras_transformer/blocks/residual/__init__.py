"""Residual schemes: where a block normalizes and how it adds a sublayer's output."""
