"""Normalization of texts in a graph: composed characters, character maps, and bytes that are no UTF-8."""
