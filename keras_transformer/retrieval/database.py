"""Database of chunks for retrieval."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.retrieval.chunks import Chunks
from keras_transformer.retrieval.errors import InvalidDatabaseError, RetrievalError
from keras_transformer.retrieval.n_grams import HashedNGrams, normalize
from keras_transformer.retrieval.nearest_neighbors import NearestNeighbors
from keras_transformer.retrieval.storage import read_manifest, write_manifest, writing
from keras_transformer.utils.types import ArrayLike, Config, Path

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

# A function from token ids int32 `(n, m)` to vectors `(n, D)`.
Embedding: TypeAlias = Callable[[np.ndarray], ArrayLike]
_KEYS, _INDEX, _VERSION = "keys.npy", "index.bin", 1
# Number of chunks that are embedded or searched at a time.
_BATCH = 4096
# Largest difference between stored keys and those of the embedding function of a loaded database.
_TOLERANCE = 1e-3


class ChunkDatabase:
    """Key-value database of chunks: finds the chunks nearest to a chunk, with their continuations.

    `build` creates a database from text, and `load` opens it. Tokens and keys stay on disk and are read on search. For the
    memory of the search backends, see `NearestNeighbors`.

    Args:
        chunks: `Chunks`.
        index: `NearestNeighbors` with one vector for each chunk.
        embed: function from token ids int32 `(n, m)` to vectors `(n, D)`.

    Attributes:
        chunk_size: int. m.

    Raises:
        RetrievalError: different numbers of vectors and chunks.

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

    def __init__(self, chunks: Chunks, index: NearestNeighbors, embed: Embedding) -> None:
        if len(index) != len(chunks):
            raise RetrievalError(f"The index has {len(index)} vectors. Expected: one for each of {len(chunks)} chunks.")
        self.chunks, self.index, self.embed = chunks, index, embed

    @property
    def chunk_size(self) -> int:
        """int. Number of tokens in a chunk, m."""
        return self.chunks.chunk_size

    def __len__(self) -> int:
        return len(self.chunks)

    @classmethod
    def build(
        cls,
        directory: Path,
        documents: Any,
        tokenizer: Tokenizer,
        *,
        chunk_size: int = 64,
        embed: Embedding | None = None,
        backend: str | NearestNeighbors = "exact",
        separator: str | None = None,
    ) -> ChunkDatabase:
        """Builds a database from text and writes it to a folder. The text may be larger than memory.

        Args:
            directory: str or path. An existing database is replaced atomically.
            documents: path of a text file, a list of such paths, or any iterable of str; see `Chunks.build`.
            tokenizer: `text.Tokenizer`, that of the model.
            chunk_size: int >= 1. m, that of the model.
            embed: function from token ids int32 `(n, m)` to vectors `(n, D)`, which are scaled to unit length. None for
                `HashedNGrams()`. `MeanEmbedding` creates one from an encoder.
            backend: str, the search backend, or an empty `NearestNeighbors`.
            separator: str or None. A line that ends a document.

        Returns:
            `ChunkDatabase`.

        Raises:
            TextError: a file cannot be read, or the documents contain no text.
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
            write_manifest(work, {"version": _VERSION, **_config(chunks, index, embed, tokenizer.vocabulary_size)})
        return cls.load(directory, embed, verify=False)

    @classmethod
    def load(cls, directory: Path, embed: Embedding | None = None, *, verify: bool = True) -> ChunkDatabase:
        """Opens a folder that `build` has written.

        Args:
            directory: str or path.
            embed: the function that the database was built with. May be None for `HashedNGrams`, whose arguments are in the
                folder.
            verify: bool. Whether to verify the hashes, which reads all files. Sizes are always verified.

        Returns:
            `ChunkDatabase`.

        Raises:
            InvalidDatabaseError: a file is missing, modified or truncated.
            RetrievalError: `embed` is missing, or returns different vectors.
            ImportError: the library of the backend is not installed.
        """
        config = read_manifest(directory, verify)
        try:
            if config["version"] != _VERSION:
                raise InvalidDatabaseError(f"'{directory}' has version {config['version']}. Expected: {_VERSION}")
            embed_config = config["embed"]
            index = NearestNeighbors(**config["index"])
            chunks = Chunks.load(directory, config["chunk_size"], config["vocabulary_size"])
            keys = np.load(f"{directory}/{_KEYS}", mmap_mode="r", allow_pickle=False)
            index.load(f"{directory}/{_INDEX}", keys)
            embed = HashedNGrams(**embed_config) if embed is None and embed_config is not None else embed
        except (OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidDatabaseError):
                raise
            raise InvalidDatabaseError(f"'{directory}' contains no valid database: {error}") from None
        if embed is None:
            raise RetrievalError(f"'{directory}' was built with a custom embed function: pass it as embed.")
        database = cls(chunks, index, embed)
        database._check_embed(keys)
        return database

    def _check_embed(self, keys: np.ndarray) -> None:
        ids = np.unique(np.linspace(0, len(self) - 1, 4).astype("int64"))
        vectors = normalize(self.embed(self.chunks.tokens(ids)))
        if vectors.shape[1] != keys.shape[1] or np.abs(vectors - keys[ids]).max() > _TOLERANCE:
            raise RetrievalError(
                "The database was built with another embed function: its vectors differ from the keys."
            )

    def search(
        self, token_ids: ArrayLike, num_neighbors: int, exclude_documents: ArrayLike | None = None
    ) -> np.ndarray:
        """Finds the nearest chunks.

        Args:
            token_ids: int `(n, m)`. The query chunks.
            num_neighbors: int >= 1. k.
            exclude_documents: int `(n,)`, or None. For each query, the index of a document whose chunks are excluded (in
                training, its own document), or -1.

        Returns:
            int64 `(n, k)`. Chunk ids, nearest first; -1 if there are fewer.

        Raises:
            RetrievalError: the shape of `token_ids` is not `(n, m)`.
        """
        token_ids = np.asarray(token_ids, "int32")
        if token_ids.ndim != 2 or token_ids.shape[1] != self.chunk_size:
            raise RetrievalError(f"Expected chunks of {self.chunk_size} tokens. Received: shape {token_ids.shape}")
        excluded = np.full(len(token_ids), -1) if exclude_documents is None else np.asarray(exclude_documents)
        found = [np.zeros((0, num_neighbors), "int64")]
        for start in range(0, len(token_ids), _BATCH):
            part = slice(start, start + _BATCH)
            found.append(self._search(normalize(self.embed(token_ids[part])), num_neighbors, excluded[part]))
        return np.concatenate(found)

    def _search(self, vectors: np.ndarray, count: int, excluded: np.ndarray) -> np.ndarray:
        found = np.full((len(vectors), count), -1, "int64")
        rows, wanted = np.arange(len(vectors)), count if (excluded < 0).all() else 2 * count + 4
        while len(rows):
            _, ids = self.index.search(vectors[rows], wanted)
            fits = (ids >= 0) & (self.chunks.documents(np.maximum(ids, 0)) != excluded[rows, None])
            # Valid neighbors first, in their order.
            order = np.argsort(~fits, axis=1, kind="stable")[:, :count]
            kept = np.where(np.take_along_axis(fits, order, 1), np.take_along_axis(ids, order, 1), -1)
            found[rows, : kept.shape[1]] = kept
            # Excluded chunks may have displaced others: search for more, unless all vectors were found.
            rows = rows[fits.sum(axis=1) < min(count, len(self))] if ids.shape[1] < len(self) else rows[:0]
            wanted *= 4
        return found

    def neighbors(
        self, token_ids: ArrayLike, num_neighbors: int, length: int, exclude_documents: ArrayLike | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the nearest chunks and returns their tokens with continuations, the inputs of a model.

        Args:
            token_ids: int `(n, m)`. The query chunks.
            num_neighbors: int >= 1. k.
            length: int >= 1. r, usually 2 m.
            exclude_documents: as in `search`.

        Returns:
            Tuple of token ids int32 `(n, k, r)`, and a boolean mask of the same shape.
        """
        return self.chunks.passages(self.search(token_ids, num_neighbors, exclude_documents), length)

    def neighbors_of(self, chunks: Chunks, num_neighbors: int, path: Path | None = None) -> np.ndarray:
        """Precomputes the neighbors of all chunks of a corpus, for training usually those of the database itself.

        Args:
            chunks: `Chunks`. For the chunks of the database itself, neighbors from the same document are excluded.
            num_neighbors: int >= 1. k.
            path: str or path of an ".npy" file for the result, which stays on disk, or None for an array in memory.

        Returns:
            int64 `(len(chunks), k)`. Chunk ids of the database; -1 if there are fewer.
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
        raise RetrievalError("The index is not empty. Pass an empty index.")
    return index


def _write_keys(path: Path, chunks: Chunks, embed: Embedding) -> None:
    keys: np.memmap | None = None
    for start in range(0, len(chunks), _BATCH):
        ids = np.arange(start, min(start + _BATCH, len(chunks)))
        vectors = normalize(embed(chunks.tokens(ids)))
        if keys is None:
            keys = np.lib.format.open_memmap(path, "w+", "float32", (len(chunks), vectors.shape[1]))
        keys[ids] = vectors
    if keys is not None:
        keys.flush()


def _config(chunks: Chunks, index: NearestNeighbors, embed: Embedding, vocabulary_size: int) -> Config:
    options = {name: getattr(index, name) for name in ("backend", "chunk_size", "neighbors", "effort")}
    return {
        "chunk_size": chunks.chunk_size,
        "vocabulary_size": int(vocabulary_size),
        "num_documents": chunks.num_documents,
        "num_chunks": len(chunks),
        "index": options,
        "embed": embed.get_config() if isinstance(embed, HashedNGrams) else None,
    }
