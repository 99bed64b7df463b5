"""State-space models."""
