"""Losses of tokens, pairs, comparisons, transcriptions and detected objects."""
