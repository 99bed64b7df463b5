"""Attention over the patches of a grid, of images."""
