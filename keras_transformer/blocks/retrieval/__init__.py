"""Blocks that encode and attend to retrieved neighbors."""
