"""Positions and coordinates of patches and pixels."""
