"""Reading the files of tokenizers; every error names the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.utils.types import Path

# Larger than any vocabulary.
MAX_BYTES = 2**29


def read_file(path: Path) -> bytes:
    """The bytes of a tokenizer's file.

    Raises:
        InvalidTokenizerError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidTokenizerError(f"'{path}' cannot be read: {error.strerror}.") from None


def read_text(path: Path) -> str:
    """The UTF-8 text of a tokenizer's file.

    Raises:
        InvalidTokenizerError: it cannot be read, is too large, or is no UTF-8.
    """
    if os.path.isfile(path) and os.path.getsize(path) > MAX_BYTES:
        raise InvalidTokenizerError(f"'{path}' is larger than {MAX_BYTES // 2**20} MiB.")
    return decode_file(read_file(path), path)


def decode_file(data: bytes, path: Path) -> str:
    """Bytes of a tokenizer's file as text.

    Raises:
        InvalidTokenizerError: they are no UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidTokenizerError(f"'{path}' is not UTF-8: byte {error.start}.") from None


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Has errors about a tokenizer say which file it is in."""
    try:
        yield
    except InvalidTokenizerError as error:
        raise InvalidTokenizerError(f"'{path}': {error}") from None
