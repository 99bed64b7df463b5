"""Helpers without tensors: lazy names, atomic writes, JSON, layer order and serialization."""
