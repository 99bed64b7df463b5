"""Tokenizers of Hugging Face checkpoints."""
