"""Training and evaluation batches of text with retrieved neighbors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.retrieval.errors import RetrievalError
from keras_transformer.utils.labels import IGNORE_ID

if TYPE_CHECKING:
    from keras_transformer.retrieval.chunks import Chunks
    from keras_transformer.retrieval.database import ChunkDatabase


def retrieval_batches(
    chunks: Chunks,
    neighbors: np.ndarray,
    database: ChunkDatabase,
    sequence_length: int,
    batch_size: int,
    steps_per_epoch: int,
    *,
    neighbor_length: int | None = None,
    seed: int = 0,
) -> BatchStream:
    """Training batches of random sequences that start at a chunk, with the neighbors of their chunks.

    Starts are sampled uniformly from all chunks of all documents, with replacement. `seed`, epoch and step determine a
    batch. A sequence ends at the end of its document; the rest is padding without labels.

    Args:
        chunks: `retrieval.Chunks`. The training corpus, usually `database.chunks`.
        neighbors: int `(len(chunks), k)`, from `database.neighbors_of(chunks, k)`. An array on disk stays there.
        database: `retrieval.ChunkDatabase`.
        sequence_length: int, a multiple of the chunk size. T.
        batch_size: int >= 1. B.
        steps_per_epoch: int >= 1. Any number, because sampling is with replacement.
        neighbor_length: int >= 1, or None for two chunks. r.
        seed: int >= 0.

    Returns:
        `data.BatchStream` with fixed shapes: {"token_ids": int32 `(B, T)`, "padding_mask": bool `(B, T)`,
        "neighbor_token_ids": int32 `(B, T / m, k, r)`, "neighbor_mask": bool `(B, T / m, k, r)`}, and labels int32
        `(B, T)`, the next tokens.

    Raises:
        RetrievalError: different numbers of chunks and neighbors; `sequence_length` is not a multiple of the chunk size; no
            document has two tokens.

    Example:

    >>> from keras_transformer.retrieval import ChunkDatabase
    >>> from keras_transformer.text import Characters
    >>> documents = ["the cat sat on the mat", "the cat ate the rat"]
    >>> tokenizer = Characters.train(documents)
    >>> database = ChunkDatabase.build("pets", documents, tokenizer, chunk_size=4)
    >>> found = database.neighbors_of(database.chunks, num_neighbors=2)
    >>> inputs, labels = retrieval_batches(database.chunks, found, database, 16, 3, steps_per_epoch=10)[0]
    >>> inputs["neighbor_token_ids"].shape, labels.shape
    ((3, 4, 2, 8), (3, 16))

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, sections 2.1 and 2.2.
    """
    rows = _Rows(chunks, neighbors, database, sequence_length, neighbor_length, stride=1)
    if batch_size < 1 or seed < 0:
        raise RetrievalError(f"batch_size must be positive and seed non-negative. Received: {batch_size}, {seed}")

    def make(epoch: int, step: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return rows.batch(np.random.default_rng([seed, epoch, step]).integers(0, len(rows), batch_size), batch_size)

    return rows.stream(make, steps_per_epoch, (batch_size, steps_per_epoch, seed))


def retrieval_evaluation_batches(
    chunks: Chunks,
    neighbors: np.ndarray,
    database: ChunkDatabase,
    sequence_length: int,
    batch_size: int,
    *,
    neighbor_length: int | None = None,
) -> BatchStream:
    """Evaluation batches of consecutive sequences of all documents, with the neighbors of their chunks.

    Each token is a label once, except for the first token of each document.

    Args:
        chunks: `retrieval.Chunks`. The evaluation corpus.
        neighbors: int `(len(chunks), k)`, from `database.neighbors_of(chunks, k)`.
        database: `retrieval.ChunkDatabase`.
        sequence_length: int, a multiple of the chunk size. T.
        batch_size: int >= 1. B.
        neighbor_length: int >= 1, or None for two chunks. r.

    Returns:
        `data.BatchStream`, as from `retrieval_batches`. Its `epoch()` is one pass over the corpus. The last batch is padded
        with empty rows.

    Raises:
        RetrievalError: as for `retrieval_batches`.

    Example:

    >>> from keras_transformer.retrieval import ChunkDatabase
    >>> from keras_transformer.text import Characters
    >>> tokenizer = Characters.train(["the cat sat on the mat"])
    >>> database = ChunkDatabase.build("pets", ["the cat sat", "on the mat"], tokenizer, chunk_size=4)
    >>> found = database.neighbors_of(database.chunks, num_neighbors=1)
    >>> inputs, labels = retrieval_evaluation_batches(database.chunks, found, database, 8, batch_size=3)[0]
    >>> [tokenizer.decode(row[mask]) for row, mask in zip(inputs["token_ids"], inputs["padding_mask"])]
    ['the cat ', 'sat', 'on the m']
    """
    stride = sequence_length // chunks.chunk_size
    rows = _Rows(chunks, neighbors, database, sequence_length, neighbor_length, stride)
    if batch_size < 1:
        raise RetrievalError(f"batch_size must be positive. Received: {batch_size}")

    def make(_: int, step: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return rows.batch(np.arange(step * batch_size, min((step + 1) * batch_size, len(rows))), batch_size)

    return rows.stream(make, -(-len(rows) // batch_size), (batch_size,))


class _Rows:
    """Sequences of `length` tokens with labels, which start at every `stride`-th chunk of each document."""

    def __init__(
        self,
        chunks: Chunks,
        neighbors: np.ndarray,
        database: ChunkDatabase,
        length: int,
        neighbor_length: int | None,
        stride: int,
    ) -> None:
        size = chunks.chunk_size
        if size != database.chunk_size or length < size or length % size:
            raise RetrievalError(
                "chunks and database must have the same chunk_size, and sequence_length must be a multiple of it. Received: "
                f"{size} and {database.chunk_size}, sequence_length={length}"
            )
        if len(neighbors) != len(chunks):
            raise RetrievalError(f"neighbors must have {len(chunks)} rows, one per chunk. Received: {len(neighbors)}")
        self.chunks, self.neighbors, self.database, self.length = chunks, neighbors, database, length
        self.neighbor_length = neighbor_length or 2 * size
        sizes = np.diff(chunks.document_starts)
        counts = -(-np.maximum(sizes - 1, 0) // (size * stride))  # The last token of a document has no label.
        if not counts.any():
            raise RetrievalError("No document has the two tokens that a label needs.")
        self.stride, self.first_rows = stride, np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    def batch(self, rows: np.ndarray, batch_size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        chunks, size = self.chunks, self.chunks.chunk_size
        documents = np.searchsorted(self.first_rows, rows, side="right") - 1
        offsets = (rows - self.first_rows[documents]) * self.stride  # Chunks of the document before each sequence.
        starts = chunks.document_starts[documents] + offsets * size
        indices = starts[:, None] + np.arange(self.length + 1)
        real = indices < chunks.document_starts[documents + 1][:, None]
        token_ids = np.where(real, chunks.token_ids[np.minimum(indices, len(chunks.token_ids) - 1)], 0).astype("int32")
        labels = np.where(real[:, 1:], token_ids[:, 1:], IGNORE_ID)
        ids = chunks.first_chunks[documents] + offsets
        ids = ids[:, None] + np.arange(self.length // size)
        known = ids < chunks.first_chunks[documents + 1][:, None]
        found = np.full((*ids.shape, self.neighbors.shape[1]), -1)
        found[known] = self.neighbors[ids[known]]
        neighbors, mask = self.database.chunks.passages(found, self.neighbor_length)
        inputs = {
            "token_ids": token_ids[:, :-1],
            "padding_mask": real[:, :-1],
            "neighbor_token_ids": neighbors,
            "neighbor_mask": mask,
        }
        empty = batch_size - len(rows)
        inputs = {name: _filled(array, empty, 0) for name, array in inputs.items()}
        return inputs, _filled(labels.astype("int32"), empty, IGNORE_ID)

    def stream(self, make: Callable[..., object], steps: int, settings: tuple[object, ...]) -> BatchStream:
        settings = (*settings, self.length, self.neighbor_length, len(self), self.neighbors.shape)
        starts = self.chunks.document_starts[:1000].tobytes() + np.asarray(self.chunks.token_ids[:1000]).tobytes()
        fingerprint = hashlib.sha256(repr(settings).encode() + starts).hexdigest()[:16]
        return BatchStream(make, steps, fingerprint=fingerprint, fixed_shapes=True)


def _filled(array: np.ndarray, rows: int, value: int) -> np.ndarray:
    return np.pad(array, ((0, rows), *[(0, 0)] * (array.ndim - 1)), constant_values=value)
