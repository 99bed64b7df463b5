"""The label of tokens that losses, metrics and pipelines leave out."""

IGNORE_ID = -100
