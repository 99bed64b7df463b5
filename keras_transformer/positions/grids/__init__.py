"""Positions on a grid, of images."""
