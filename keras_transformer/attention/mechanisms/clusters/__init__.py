"""Mechanisms that attend within groups of similar queries and keys."""
