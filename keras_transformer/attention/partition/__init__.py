"""Partitions of sequences: bands, windows, segments, strides, chunks and block tables."""
