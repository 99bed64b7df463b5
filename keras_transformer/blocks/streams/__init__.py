"""Blocks of several streams of tokens."""
