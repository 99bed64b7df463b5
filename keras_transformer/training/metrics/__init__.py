"""Metrics of tokens, texts and detected objects."""
