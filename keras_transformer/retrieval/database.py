"""The database of chunks, which is searched for the neighbors of a chunk and their continuations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from keras_transformer.retrieval.chunks import Chunks
from keras_transformer.retrieval.errors import InvalidDatabaseError, RetrievalError
from keras_transformer.retrieval.n_grams import HashedNGrams, unit
from keras_transformer.retrieval.nearest_neighbors import NearestNeighbors
from keras_transformer.retrieval.storage import seal, unseal, writing
from keras_transformer.utils.types import Path

# From token ids, int32 `(n, m)`, to vectors `(n, D)`.
Embed: TypeAlias = Callable[[np.ndarray], np.ndarray]

_KEYS, _INDEX, _VERSION = "keys.npy", "index.bin", 1
# Number of chunks that are embedded, or searched for, at a time.
_BATCH = 4096
# A loaded database must reproduce its stored keys.
_TOLERANCE = 1e-3


class ChunkDatabase:
    """Chunks of documents with their embeddings: finds the nearest neighbors of a chunk, with their continuations.

    `build` creates one from text, `load` opens it. Tokens and keys stay on disk, except for what a search reads; for the
    memory of the backends see `NearestNeighbors`.

    Args:
        chunks: `Chunks`.
        index: `NearestNeighbors` of a vector for each chunk.
        embed: function of token ids, int32 `(n, m)`, to vectors `(n, D)`.

    Attributes:
        chunk_size: int. m.

    Raises:
        RetrievalError: the number of vectors differs from that of chunks.

    Example:

    >>> from keras_transformer.text import Characters
    >>> documents = ["the cat sat on the mat", "the cat ate the rat", "a dog"]
    >>> tokenizer = Characters.train(documents)
    >>> database = ChunkDatabase.build("pets", documents, tokenizer, chunk_size=8)
    >>> token_ids, mask = database.neighbors([tokenizer.encode("the cat ")], 1, 12, exclude_documents=[0])
    >>> tokenizer.decode(token_ids[0, 0][mask[0, 0]])
    'the cat ate '

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, sections 2.2 and 2.3.
    """

    def __init__(self, chunks: Chunks, index: NearestNeighbors, embed: Embed) -> None:
        if len(index) != len(chunks):
            raise RetrievalError(f"There are {len(index)} vectors for {len(chunks)} chunks.")
        self.chunks, self.index, self.embed = chunks, index, embed

    @property
    def chunk_size(self) -> int:
        """int: the number of tokens of a chunk, m."""
        return self.chunks.chunk_size

    def __len__(self) -> int:
        return len(self.chunks)

    @classmethod
    def build(
        cls,
        directory: Path,
        documents: Any,
        tokenizer: Any,
        *,
        chunk_size: int = 64,
        embed: Embed | None = None,
        backend: str | NearestNeighbors = "exact",
        separator: str | None = None,
    ) -> ChunkDatabase:
        """Builds a database from text and writes it to a folder; texts may be larger than memory.

        Args:
            directory: str or path. An existing database is replaced when the new one is complete.
            documents: path of a text file, a list of such paths, or any iterable of str: see `Chunks.build`.
            tokenizer: a tokenizer of `keras_transformer.text`: the tokenizer of the model.
            chunk_size: int >= 1. m, the chunk size of the model.
            embed: function of token ids, int32 `(n, m)`, to vectors `(n, D)`, which are scaled to unit length; None for
                `HashedNGrams()`. `MeanEmbedding` is one with an encoder.
            backend: str, or an empty `NearestNeighbors`: the search.
            separator: str or None: a line that ends a document.

        Raises:
            TextError: a file cannot be read, or there is no text.
            RetrievalError: no document has a full chunk; `directory` exists and is not a database.
        """
        embed = HashedNGrams() if embed is None else embed
        index = _new_index(backend)
        with writing(directory) as work:
            chunks = Chunks.build(work, documents, tokenizer, chunk_size, separator)
            if not len(chunks):
                raise RetrievalError(f"No document has a full chunk of {chunk_size} tokens.")
            _write_keys(work / _KEYS, chunks, embed)
            index.add(np.load(work / _KEYS, mmap_mode="r"))
            index.save(work / _INDEX)
            seal(work, {"version": _VERSION, **_config(chunks, index, embed, tokenizer.vocabulary_size)})
        return cls.load(directory, embed, verify=False)

    @classmethod
    def load(cls, directory: Path, embed: Embed | None = None, *, verify: bool = True) -> ChunkDatabase:
        """Opens a folder of `build`.

        Args:
            directory: str or path.
            embed: the function of `build`; None for `HashedNGrams`, whose options are in the folder.
            verify: bool. Whether to check the hashes of all files; their sizes are always checked.

        Raises:
            InvalidDatabaseError: a file is missing, damaged or truncated.
            RetrievalError: `embed` is missing, or returns other vectors than before.
            ImportError: the library of its backend is not installed.
        """
        config = unseal(directory, verify)
        try:
            if config["version"] != _VERSION:
                raise InvalidDatabaseError(f"'{directory}' is of version {config['version']}, not {_VERSION}.")
            made_by = config["embed"]
            index = NearestNeighbors(**config["index"])
            chunks = Chunks.load(directory, config["chunk_size"], config["vocabulary_size"])
            keys = np.load(f"{directory}/{_KEYS}", mmap_mode="r", allow_pickle=False)
            index.load(f"{directory}/{_INDEX}", keys)
            embed = HashedNGrams(**made_by) if embed is None and made_by is not None else embed
        except (OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidDatabaseError):
                raise
            raise InvalidDatabaseError(f"'{directory}' contains no readable database: {error}") from None
        if embed is None:
            raise RetrievalError(f"'{directory}' was built with a custom function: pass it as embed.")
        database = cls(chunks, index, embed)
        database._check_embed(keys)
        return database

    def _check_embed(self, keys: Any) -> None:
        indices = np.unique(np.linspace(0, len(self) - 1, 4).astype("int64"))
        made = unit(self.embed(self.chunks.tokens(indices)))
        if made.shape[1] != keys.shape[1] or np.abs(made - keys[indices]).max() > _TOLERANCE:
            raise RetrievalError("The database was built with another embed: its keys differ.")

    def search(self, token_ids: Any, num_neighbors: int, exclude_documents: Any = None) -> np.ndarray:
        """Returns the nearest neighbors of chunks.

        Args:
            token_ids: int `(n, m)`.
            num_neighbors: int >= 1. k.
            exclude_documents: int `(n,)`, or None: for each chunk the index of a document to exclude, which is its own in
                training; -1 for none.

        Returns:
            int64 `(n, k)`: indices of chunks, the nearest first; -1 where there are no more.
        """
        token_ids = np.asarray(token_ids, "int32")
        if token_ids.ndim != 2 or token_ids.shape[1] != self.chunk_size:
            raise RetrievalError(f"Expected chunks of {self.chunk_size} tokens. Received: shape {token_ids.shape}")
        excluded = np.full(len(token_ids), -1) if exclude_documents is None else np.asarray(exclude_documents)
        found = [np.zeros((0, num_neighbors), "int64")]
        for start in range(0, len(token_ids), _BATCH):
            part = slice(start, start + _BATCH)
            found.append(self._search(unit(self.embed(token_ids[part])), num_neighbors, excluded[part]))
        return np.concatenate(found)

    def _search(self, vectors: Any, count: int, excluded: Any):
        found = np.full((len(vectors), count), -1, "int64")
        rows, wanted = np.arange(len(vectors)), count if (excluded < 0).all() else 2 * count + 4
        while len(rows):
            _, ids = self.index.search(vectors[rows], wanted)
            fits = (ids >= 0) & (self.chunks.documents(np.maximum(ids, 0)) != excluded[rows, None])
            # Those that fit first, in their order.
            order = np.argsort(~fits, axis=1, kind="stable")[:, :count]
            kept = np.where(np.take_along_axis(fits, order, 1), np.take_along_axis(ids, order, 1), -1)
            found[rows, : kept.shape[1]] = kept
            # Excluded results may have displaced others: search for more, unless there are none.
            rows = rows[fits.sum(axis=1) < min(count, len(self))] if ids.shape[1] < len(self) else rows[:0]
            wanted *= 4
        return found

    def neighbors(
        self, token_ids: Any, num_neighbors: int, length: int, exclude_documents: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens of the nearest neighbors of chunks, with their continuations.

        Args:
            token_ids: int `(n, m)`.
            num_neighbors: int >= 1. k.
            length: int >= 1. r, usually 2 m.
            exclude_documents: as in `search`.

        Returns:
            int32 `(n, k, r)`, and a boolean mask of the same shape.
        """
        return self.chunks.passages(self.search(token_ids, num_neighbors, exclude_documents), length)

    def neighbors_of(self, chunks: Any, num_neighbors: int, path: Path | None = None) -> np.ndarray:
        """Returns the neighbors of all chunks of a text; in training of the database itself.

        Args:
            chunks: `Chunks`. For those of the database, neighbors of the same document are excluded.
            num_neighbors: int >= 1. k.
            path: str or path of an ".npy" file to write to, which stays on disk; None for an array in memory.

        Returns:
            int64 `(len(chunks), k)`: indices of chunks of the database; -1 where there are no more.
        """
        shape, is_own = (len(chunks), num_neighbors), chunks is self.chunks
        found = np.empty(shape, "int64") if path is None else np.lib.format.open_memmap(path, "w+", "int64", shape)
        for start in range(0, len(chunks), _BATCH):
            ids = np.arange(start, min(start + _BATCH, len(chunks)))
            own = chunks.documents(ids) if is_own else None
            found[ids] = self.search(chunks.tokens(ids), num_neighbors, own)
        return found


def _new_index(backend: str | NearestNeighbors) -> NearestNeighbors:
    index = NearestNeighbors(backend) if isinstance(backend, str) else backend
    if len(index):
        raise RetrievalError("The index contains vectors already: pass an empty one.")
    return index


def _write_keys(path: Path, chunks: Chunks, embed: Embed) -> None:
    keys: np.memmap | None = None
    for start in range(0, len(chunks), _BATCH):
        ids = np.arange(start, min(start + _BATCH, len(chunks)))
        vectors = unit(embed(chunks.tokens(ids)))
        if keys is None:
            keys = np.lib.format.open_memmap(path, "w+", "float32", (len(chunks), vectors.shape[1]))
        keys[ids] = vectors
    if keys is not None:
        keys.flush()


def _config(chunks: Chunks, index: NearestNeighbors, embed: Embed, vocabulary_size: int) -> dict[str, Any]:
    options = {name: getattr(index, name) for name in ("backend", "chunk_size", "neighbors", "effort")}
    made_by = embed.get_config() if type(embed) is HashedNGrams else None
    return {
        "chunk_size": chunks.chunk_size,
        "vocabulary_size": int(vocabulary_size),
        "num_documents": chunks.num_documents,
        "num_chunks": len(chunks),
        "index": options,
        "embed": made_by,
    }
