"""Passes over the converted graphs of a TFLite file."""
