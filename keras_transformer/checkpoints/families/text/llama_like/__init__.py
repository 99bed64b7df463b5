"""Families of decoders with the layout of Llama."""
