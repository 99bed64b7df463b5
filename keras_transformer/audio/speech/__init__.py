"""Layers of encoders of speech: from samples to frames, and what is done with frames."""
