"""Attention whose output is gated."""
