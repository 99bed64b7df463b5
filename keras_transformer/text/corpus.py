"""Streaming of text from files or memory, with validation of UTF-8."""

from __future__ import annotations

import codecs
import gzip
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras_transformer.text.errors import (
    EmptyTextError,
    EncodingError,
    MissingTextError,
    TextError,
)
from keras_transformer.utils.types import Path

BLOCK_BYTES = 2**20


def stream_texts(files_or_texts: Any) -> Iterator[str]:
    """Streams the texts of a corpus. Arguments are checked at once; the text is read on iteration.

    Args:
        files_or_texts: path of a text file, a list of such paths, or any iterable of str. A single str is a path. The items
            of a list of str are paths if all of them are existing files. A file ending in ".gz" is decompressed.

    Returns:
        Iterator of non-empty str. A file is read in blocks of about a megabyte that end at line ends.

    Raises:
        MissingTextError: a file does not exist or cannot be read.
        EncodingError: a file is not UTF-8; the message has the file and the byte.
        EmptyTextError: the corpus contains no text.
        TextError: an item is neither a str nor a path.
    """
    if isinstance(files_or_texts, (str, os.PathLike)):
        files_or_texts = [os.fspath(files_or_texts)]
        paths = True
    else:
        if isinstance(files_or_texts, (bytes, dict)) or not hasattr(files_or_texts, "__iter__"):
            raise TextError(f"Expected paths of files or an iterable of str. Received: {type(files_or_texts).__name__}")
        paths = isinstance(files_or_texts, (list, tuple)) and all_paths(files_or_texts)
    if paths:
        files_or_texts = [os.fspath(path) for path in files_or_texts]
        for path in files_or_texts:
            if not os.path.isfile(path) or not os.access(path, os.R_OK):
                raise MissingTextError(f"'{path}' is not a readable file.")
    texts = _blocks_of_files(files_or_texts) if paths else _checked(files_or_texts)
    texts = (text for text in texts if text)
    first = next(texts, None)
    if first is None:
        source = ", ".join(files_or_texts) if paths else "the iterable has no str"
        raise EmptyTextError(f"The corpus contains no text: {source}")
    return itertools.chain([first], texts)


def all_paths(items: Sequence[object]) -> bool:
    """Whether all items of a list are paths of files."""
    if not items:
        return False
    if any(isinstance(item, os.PathLike) for item in items):
        return all(isinstance(item, (str, os.PathLike)) for item in items)
    # A text longer than any path is not looked up.
    return all(isinstance(item, str) and len(item) < 4096 and _is_file(item) for item in items)


def _is_file(name: str) -> bool:
    try:
        return os.path.isfile(name)
    except ValueError:  # A null character.
        return False


def _checked(texts: Iterable[object]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"Item {index} must be str. Received: {type(text).__name__}")
        check_unicode(text)
        yield text


def _blocks_of_files(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from read_blocks(path)


def read_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[str]:
    """Yields the text of a file in blocks that end at line ends; their concatenation is the text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    opener = gzip.open if str(path).endswith(".gz") else open
    offset, rest = 0, list[str]()
    try:
        with opener(path, "rb") as file:
            while block := file.read(block_bytes):
                text = _decode(decoder, block, path, offset)
                offset += len(block)
                lines, newline, tail = text.rpartition("\n")
                if newline:
                    yield "".join([*rest, lines, newline])
                    rest = []
                rest.append(tail)
            rest.append(_decode(decoder, b"", path, offset, final=True))
    except (OSError, EOFError) as error:
        raise MissingTextError(f"'{path}' cannot be read: {error}") from error
    if any(rest):
        yield "".join(rest)


def _decode(decoder: codecs.IncrementalDecoder, block: bytes, path: Path, offset: int, final: bool = False) -> str:
    pending = len(decoder.getstate()[0])
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        at = offset - pending + error.start
        raise EncodingError(f"'{path}' is not UTF-8: byte {at} ({error.reason}).") from None


def check_unicode(text: str) -> None:
    """Raises `EncodingError` for a str with a lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise EncodingError(f"Character {error.start} of a text is the lone surrogate U+{code:04X}.") from None


def lines_of(texts: Iterable[str]) -> Iterator[str]:
    """Yields the non-empty lines of `texts`, without line ends."""
    for text in texts:
        for line in text.split("\n"):
            if line:
                yield line


def check_size(vocabulary_size: int, minimum: int) -> None:
    """Raises `TextError` for a vocabulary size that is not an int or is below `minimum`."""
    if isinstance(vocabulary_size, bool) or not isinstance(vocabulary_size, int) or vocabulary_size < minimum:
        raise TextError(f"vocabulary_size must be an int of at least {minimum} here. Received: {vocabulary_size!r}")
