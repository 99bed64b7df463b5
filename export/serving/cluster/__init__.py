"""Serving from a cluster of Ray."""
