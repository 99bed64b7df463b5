"""Exact softmax attention computed tile by tile, in memory linear in the length."""
