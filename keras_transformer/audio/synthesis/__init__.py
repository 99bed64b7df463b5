"""Layers of speech synthesis: durations of tokens, frames, and samples."""
