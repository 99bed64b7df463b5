"""Encoder blocks."""
