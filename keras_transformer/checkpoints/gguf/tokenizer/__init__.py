"""Tokenizers in the metadata of GGUF."""
