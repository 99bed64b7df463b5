"""Tasks of text."""
