"""Conventions of published WordPiece vocabularies, which the tokenizer and its TensorFlow graph share."""

from __future__ import annotations

from keras_transformer.text.tokenizers.tokenizer_files import decode_file
from keras_transformer.utils.types import Path

# Begins the tokens that continue a word.
PREFIX = "##"
# Longer words become the unknown token, as in BERT's published code.
MAX_CHARACTERS_PER_WORD = 100


def vocabulary_lines(data: bytes, path: Path) -> list[str]:
    """Returns the lines of a vocabulary file. A line ends with a line feed alone, or after a carriage return."""
    lines = [line.removesuffix("\r") for line in decode_file(data, path).split("\n")]
    return lines[:-1] if lines[-1] == "" else lines
