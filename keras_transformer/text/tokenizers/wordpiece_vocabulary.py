"""Conventions of published WordPiece vocabularies, shared by the tokenizer and its TensorFlow graph."""

from __future__ import annotations

from keras_transformer.text.tokenizers.tokenizer_files import decode_file
from keras_transformer.utils.types import Path

# Prefix of the tokens that continue a word (`continuing_subword_prefix`).
PREFIX = "##"
# Longer words are encoded as the unknown token, as in the published code of BERT.
MAX_CHARACTERS_PER_WORD = 100


def vocabulary_lines(data: bytes, path: Path) -> list[str]:
    """Returns the lines of a vocabulary file. Lines end with a line feed, optionally after a carriage return."""
    lines = [line.removesuffix("\r") for line in decode_file(data, path).split("\n")]
    return lines[:-1] if lines[-1] == "" else lines
