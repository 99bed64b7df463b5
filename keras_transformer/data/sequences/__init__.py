"""Batches of token ids: by length, packed, or as windows."""
