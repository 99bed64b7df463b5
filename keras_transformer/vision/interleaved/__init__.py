"""Images within the tokens of a text."""
