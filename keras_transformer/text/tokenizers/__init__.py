"""Tokenizers with one interface."""
