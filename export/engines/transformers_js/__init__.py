"""Folders for transformers.js."""
