"""Tokenized documents on disk, split into chunks."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.retrieval.errors import InvalidDatabaseError, RetrievalError
from keras_transformer.text.corpus import all_paths, read_blocks, stream_texts
from keras_transformer.utils.types import ArrayLike, Path

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

TOKENS, STARTS = "token_ids.bin", "document_starts.npy"


class Chunks:
    """Tokenized documents, split into chunks: chunk j of a document has its tokens `j m` to `j m + m - 1`.

    All chunks are full. Tokens after the last chunk of a document are only part of its continuation, and a document shorter
    than a chunk has no chunks.

    Args:
        token_ids: integers `(n,)`. The concatenated tokens of all documents. A `numpy.memmap` stays on disk.
        document_starts: int64 `(d + 1,)`. The start of each document, and the end of the last.
        chunk_size: int >= 1. m.

    Raises:
        RetrievalError: `document_starts` does not match the tokens; `chunk_size` is below 1.

    Example:

    >>> import numpy as np
    >>> chunks = Chunks(np.arange(10), np.array([0, 7, 10]), chunk_size=3)
    >>> len(chunks), chunks.tokens([0, 2]).tolist(), chunks.documents([0, 1, 2]).tolist()
    (3, [[0, 1, 2], [7, 8, 9]], [0, 0, 1])
    >>> token_ids, mask = chunks.passages([1, -1], length=5)
    >>> token_ids.tolist(), mask.astype(int).tolist()
    ([[3, 4, 5, 6, 0], [0, 0, 0, 0, 0]], [[1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    """

    def __init__(self, token_ids: ArrayLike, document_starts: np.ndarray, chunk_size: int) -> None:
        if not isinstance(chunk_size, int) or chunk_size < 1:
            raise RetrievalError(f"chunk_size must be a positive integer. Received: {chunk_size!r}")
        starts = np.asarray(document_starts, "int64")
        if starts.ndim != 1 or len(starts) < 2 or starts[0] != 0 or starts[-1] != len(token_ids):
            raise RetrievalError(f"document_starts must begin at 0 and end with the {len(token_ids)} tokens.")
        if (np.diff(starts) < 0).any():
            raise RetrievalError("document_starts must be in ascending order.")
        self.token_ids, self.document_starts, self.chunk_size = token_ids, starts, chunk_size
        # The index of the first chunk of each document, and the number of chunks.
        self.first_chunks = np.concatenate([[0], np.cumsum(np.diff(starts) // chunk_size)])

    @classmethod
    def build(
        cls, directory: Path, documents: Any, tokenizer: Tokenizer, chunk_size: int, separator: str | None = None
    ) -> Chunks:
        """Tokenizes documents to a folder, one block of text at a time, and loads them.

        Args:
            directory: path of an existing folder.
            documents: path of a text file, a list of such paths, or any iterable of str. Each file and each str is one
                document, or several with a separator. Files are read and tokenized in blocks that end at line ends.
            tokenizer: `text.Tokenizer`.
            chunk_size: int >= 1.
            separator: str without line ends, or None. A line equal to the separator, such as "" or "---", ends a document
                and is not part of it.

        Raises:
            TextError: a file cannot be read, or the documents contain no text.
            RetrievalError: all documents are empty.
        """
        directory = pathlib.Path(directory)
        starts, dtype = [0], token_dtype(tokenizer.vocabulary_size)
        with open(directory / TOKENS, "wb") as file:
            for blocks in _documents(documents, separator):
                length = 0
                for block in blocks:
                    token_ids = np.asarray(tokenizer.encode(block), dtype)
                    token_ids.tofile(file)
                    length += len(token_ids)
                if length:
                    starts.append(starts[-1] + length)
        if len(starts) == 1:
            raise RetrievalError("The documents contain no tokens.")
        np.save(directory / STARTS, np.array(starts, "int64"))
        return cls.load(directory, chunk_size, tokenizer.vocabulary_size)

    @classmethod
    def load(cls, directory: Path, chunk_size: int, vocabulary_size: int) -> Chunks:
        """Loads a folder that `build` has written. The tokens stay on disk.

        Args:
            directory: str or path.
            chunk_size: int >= 1.
            vocabulary_size: int. That of the tokenizer, which defines the dtype of the file.

        Raises:
            InvalidDatabaseError: a file is missing, or the files are inconsistent.
        """
        directory = pathlib.Path(directory)
        try:
            token_ids = np.memmap(directory / TOKENS, token_dtype(vocabulary_size), "r")
            return cls(token_ids, np.load(directory / STARTS, allow_pickle=False), chunk_size)
        except (OSError, ValueError) as error:
            raise InvalidDatabaseError(f"'{directory}' contains no valid chunks: {error}") from None

    def __len__(self) -> int:
        return int(self.first_chunks[-1])

    @property
    def num_documents(self) -> int:
        """int. Number of documents."""
        return len(self.document_starts) - 1

    def documents(self, chunk_ids: ArrayLike) -> np.ndarray:
        """Returns the document index of each chunk."""
        return np.searchsorted(self.first_chunks, np.asarray(chunk_ids), side="right") - 1

    def starts(self, chunk_ids: ArrayLike) -> np.ndarray:
        """Returns the index of the first token of each chunk."""
        documents = self.documents(chunk_ids)
        return self.document_starts[documents] + (chunk_ids - self.first_chunks[documents]) * self.chunk_size

    def tokens(self, chunk_ids: ArrayLike) -> np.ndarray:
        """Returns the tokens of chunks `(...)`, int32 `(..., m)`."""
        return self.passages(chunk_ids, self.chunk_size)[0]

    def passages(self, chunk_ids: ArrayLike, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns chunks with their continuations, up to the end of the document.

        Args:
            chunk_ids: int `(...)`; -1 for no chunk.
            length: int >= 1. r.

        Returns:
            Tuple of token ids int32 `(..., r)`, padded with 0, and a boolean mask of the same shape.
        """
        chunk_ids = np.asarray(chunk_ids, "int64")
        known = np.maximum(chunk_ids, 0)
        ends = self.document_starts[self.documents(known) + 1]
        indices = self.starts(known)[..., None] + np.arange(length)
        mask = (indices < ends[..., None]) & (chunk_ids >= 0)[..., None]
        token_ids = np.zeros(indices.shape, "int32")
        token_ids[mask] = self.token_ids[indices[mask]]
        return token_ids, mask


def token_dtype(vocabulary_size: int) -> np.dtype:
    """Returns the smallest dtype for token ids of this vocabulary."""
    return np.dtype("<u2" if vocabulary_size <= 2**16 else "<u4")


def _documents(documents: object, separator: str | None) -> Iterator[Iterable[str]]:
    """Yields the text of each document, as an iterable of blocks."""
    sources: Iterator[Iterable[str]]
    paths = [documents] if isinstance(documents, (str, os.PathLike)) else documents
    if isinstance(paths, (list, tuple)) and (paths is not documents or all_paths(paths)):
        stream_texts(documents)  # Verifies that all files are readable.
        sources = (read_blocks(path) for path in paths)
    else:
        sources = ([text] for text in stream_texts(documents))
    for blocks in sources:
        yield from [blocks] if separator is None else _separated(blocks, separator)


def _separated(blocks: Iterable[str], separator: str) -> Iterator[Iterator[str]]:
    """Yields the documents between separator lines. Blocks must end at line ends."""
    lines = (line for block in blocks for line in block.splitlines(keepends=True))
    for is_separator, group in itertools.groupby(lines, lambda line: line.rstrip("\r\n") == separator):
        if not is_separator:
            yield _joined(group)


def _joined(lines: Iterator[str], count: int = 4096) -> Iterator[str]:
    """Joins lines to blocks of `count` lines."""
    while block := "".join(itertools.islice(lines, count)):
        yield block
