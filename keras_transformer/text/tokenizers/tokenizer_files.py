"""Reading of tokenizer files. Every error names the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.utils.types import Path

# Larger than any known vocabulary.
MAX_BYTES = 2**29
# Prefix of the tokens that continue a word (`continuing_subword_prefix`).
PREFIX = "##"
# Longer words are encoded as the unknown token, as in the published code of BERT.
MAX_CHARACTERS_PER_WORD = 100


def read_file(path: Path) -> bytes:
    """Reads a tokenizer file as bytes.

    Raises:
        InvalidTokenizerError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidTokenizerError(f"'{path}' cannot be read: {error.strerror}.") from None


def read_text(path: Path) -> str:
    """Reads a tokenizer file as UTF-8 text.

    Raises:
        InvalidTokenizerError: the file cannot be read, is too large, or is not UTF-8.
    """
    if os.path.isfile(path) and os.path.getsize(path) > MAX_BYTES:
        raise InvalidTokenizerError(f"'{path}' is larger than {MAX_BYTES // 2**20} MiB.")
    return decode_file(read_file(path), path)


def decode_file(data: bytes, path: Path) -> str:
    """Decodes the bytes of a tokenizer file.

    Raises:
        InvalidTokenizerError: the bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidTokenizerError(f"'{path}' is not UTF-8: byte {error.start}.") from None


@contextlib.contextmanager
def errors_with_path(path: Path) -> Iterator[None]:
    """Context manager that adds the path to the message of an `InvalidTokenizerError`."""
    try:
        yield
    except InvalidTokenizerError as error:
        raise InvalidTokenizerError(f"'{path}': {error}") from None


def vocabulary_lines(data: bytes, path: Path) -> list[str]:
    """Returns the lines of a vocabulary file. Lines end with a line feed, optionally after a carriage return."""
    lines = [line.removesuffix("\r") for line in decode_file(data, path).split("\n")]
    return lines[:-1] if lines[-1] == "" else lines
