"""Decoders for LiteRT-LM."""
