"""Audio models."""
