"""Denoisers, and autoencoders of images."""
