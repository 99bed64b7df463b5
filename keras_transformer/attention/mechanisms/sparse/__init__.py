"""Mechanisms that attend to a fixed pattern of positions."""
