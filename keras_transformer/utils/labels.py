"""The label of tokens that losses, metrics and pipelines ignore."""

IGNORE_ID: int = -100
