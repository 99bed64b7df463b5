"""Families of decoders with a mixture of experts."""
