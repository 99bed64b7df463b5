"""Generation with retrieval for each completed chunk, in Keras and all runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.generation.generator import Generator
from keras_transformer.retrieval.errors import RetrievalError
from keras_transformer.utils.types import ArrayLike, Cache

if TYPE_CHECKING:
    import keras

    from keras_transformer.generation.decoding_request import ModelOutput
    from keras_transformer.generation.protocols import Source
    from keras_transformer.retrieval.database import ChunkDatabase

# Suffix of the name of the neighbor tensor in a cache, see `blocks.NeighborEncoder`.
_NEIGHBORS = "neighbor_token_ids"


def with_retrieval(
    generator: Generator, database: ChunkDatabase, num_neighbors: int = 2, neighbor_length: int | None = None
) -> Generator:
    """Creates a generator that retrieves neighbors for each chunk of the prompt and the generated text.

    Neighbors of a chunk are retrieved when its last token is known. Samplers, batches of prompts of different lengths and
    streaming work as without retrieval. Results are deterministic.

    Args:
        generator: `LanguageModel.generator()` of a `models.RETRO`, or the language model of a bundle exported from one.
        database: `ChunkDatabase`, built with the tokenizer of the model.
        num_neighbors: int >= 1. k of the model.
        neighbor_length: int >= 1, or None for `2 · chunk_size`. r of the model.

    Returns:
        `generation.Generator`.

    Raises:
        RetrievalError: on generation, if the model does not support this number or length of neighbors.

    Example:

    >>> from keras_transformer import models, tasks
    >>> from keras_transformer.retrieval import ChunkDatabase
    >>> from keras_transformer.text import Characters
    >>> documents = ["the cat sat on the mat", "the cat ate the rat"]
    >>> tokenizer = Characters.train(documents)
    >>> database = ChunkDatabase.build("pets", documents, tokenizer, chunk_size=4)
    >>> small, options = models.Size(1, 8, 2, 16), {"chunk_size": 4, "retrieval_layers": (1,)}
    >>> backbone = models.RETRO(small, tokenizer.vocabulary_size, encoder_size=small, **options)
    >>> model = tasks.LanguageModel(backbone, tokenizer=tokenizer)
    >>> generator = with_retrieval(model.generator(), database)
    >>> generator.generate("the cat", max_new_tokens=6) == generator.generate("the cat", max_new_tokens=6)
    True

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2.1.
    """
    steps = RetrievalSteps(generator.steps, database, num_neighbors, neighbor_length)
    return Generator(steps, generator.tokenizer)


class RetrievalSteps:
    """Wrapper of generation steps that writes retrieved neighbors to the cache. See `generation.loop.decode`.

    Args:
        steps: `prefill` and `decode_step` of the model, in Keras or a runtime.
        database: `ChunkDatabase`, or an object with the same `chunk_size` and `neighbors`.
        num_neighbors: int >= 1. k.
        neighbor_length: int >= 1, or None for `2 · chunk_size`. r.

    Example:

    >>> from keras_transformer import models, tasks
    >>> from keras_transformer.generation import Generator
    >>> from keras_transformer.retrieval import ChunkDatabase
    >>> from keras_transformer.text import Characters
    >>> documents = ["the cat sat on the mat", "the cat ate the rat"]
    >>> tokenizer = Characters.train(documents)
    >>> database = ChunkDatabase.build("pets", documents, tokenizer, chunk_size=4)
    >>> small, options = models.Size(1, 8, 2, 16), {"chunk_size": 4, "retrieval_layers": (1,)}
    >>> backbone = models.RETRO(small, tokenizer.vocabulary_size, encoder_size=small, **options)
    >>> model = tasks.LanguageModel(backbone, tokenizer=tokenizer)
    >>> steps = RetrievalSteps(model.generator().steps, database, num_neighbors=2)
    >>> len(Generator(steps, tokenizer).generate("the cat", max_new_tokens=4)) > 0
    True
    """

    def __init__(
        self, steps: Any, database: ChunkDatabase, num_neighbors: int = 2, neighbor_length: int | None = None
    ) -> None:
        self.steps, self.database = steps, database
        self.num_neighbors = num_neighbors
        self.neighbor_length = neighbor_length or 2 * database.chunk_size

    def __getattr__(self, name: str) -> Any:
        if name in ("steps", "generate"):  # The generation loop in a graph cannot query a database.
            raise AttributeError(name)
        return getattr(self.steps, name)

    def init_cache(self, batch_size: int, length: int, source: Source | None = None) -> _RetrievalCache:
        """Returns the cache of the model with an empty text and no neighbors."""
        cache = self.steps.init_cache(batch_size, length, source)
        slots, width = self._neighbor_tensor(cache)[1].shape[2:]
        expected = -(-self.num_neighbors * self.neighbor_length // self.database.chunk_size)
        if width != expected:
            raise RetrievalError(
                f"{self.num_neighbors} neighbors of {self.neighbor_length} tokens for each chunk of "
                f"{self.database.chunk_size} need {expected} tokens per slot. The cache of the model has {width}."
            )
        neighbors = np.zeros((batch_size, 1, slots, width), "int32")
        return _RetrievalCache(cache, np.zeros((batch_size, slots), "int32"), neighbors)

    def prefill(
        self, token_ids: np.ndarray, lengths: ArrayLike, cache: _RetrievalCache
    ) -> tuple[ModelOutput, _RetrievalCache]:
        """Processes prompts, padded on the right."""
        cache = self._retrieve(cache, token_ids, np.zeros(len(token_ids), "int32"), np.asarray(lengths))
        output, model_cache = self.steps.prefill(token_ids, lengths, cache.model)
        return output, cache._replace(model=model_cache)

    def decode_step(
        self, token_ids: np.ndarray, cache: _RetrievalCache, cache_index: ArrayLike
    ) -> tuple[ModelOutput, _RetrievalCache]:
        """Processes new tokens."""
        index = np.asarray(cache_index)
        cache = self._retrieve(cache, token_ids, index, index + token_ids.shape[1])
        output, model_cache = self.steps.decode_step(token_ids, cache.model, cache_index)
        return output, cache._replace(model=model_cache)

    def take_rows(self, cache: _RetrievalCache, rows: ArrayLike) -> _RetrievalCache:
        """Returns the cache with the given rows."""
        rows = np.asarray(rows)
        return _RetrievalCache(self.steps.take_rows(cache.model, rows), cache.token_ids[rows], cache.neighbors[rows])

    def _retrieve(
        self, cache: _RetrievalCache, token_ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> _RetrievalCache:
        """Adds new tokens to the cache, and the neighbors of the chunks that they complete."""
        size, texts, found = self.database.chunk_size, cache.token_ids.copy(), cache.neighbors
        completed: list[tuple[int, int]] = []
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            texts[row, start:end] = token_ids[row, : end - start]
            completed += [(row, chunk) for chunk in range(start // size, end // size)]
        if not completed:
            return cache._replace(token_ids=texts)
        chunks = np.stack([texts[row, chunk * size : (chunk + 1) * size] for row, chunk in completed])
        neighbors, mask = self.database.neighbors(chunks, self.num_neighbors, self.neighbor_length)
        # The format of `NeighborEncoder`: token ids plus one, because 0 means no token.
        stored: np.ndarray = np.where(mask, neighbors + 1, 0).reshape(len(completed), -1)
        width, found = found.shape[3], found.copy()
        stored = np.pad(stored, ((0, 0), (0, size * width - stored.shape[1]))).reshape(-1, size, width)
        for (row, chunk), tokens in zip(completed, stored, strict=True):
            found[row, 0, chunk * size : (chunk + 1) * size] = tokens
        return _RetrievalCache(self._with_neighbors(cache.model, found), texts, found)

    def _with_neighbors(self, cache: Cache, neighbors: np.ndarray) -> Cache:
        name, _ = self._neighbor_tensor(cache)
        if not hasattr(self.steps, "make_cache"):
            return {**cache, name: neighbors}
        # Copies, because the numpy arrays of a runtime may share memory that is freed with the old cache.
        arrays = {each: np.array(self.steps.as_numpy(tensor)) for each, tensor in cache.items() if each != name}
        return self.steps.make_cache({**arrays, name: neighbors.copy()})

    def _neighbor_tensor(self, cache: Cache) -> tuple[str, Any]:
        for name, tensor in cache.items():
            if name.endswith(_NEIGHBORS):
                return name, self.steps.as_numpy(tensor) if hasattr(self.steps, "as_numpy") else tensor
        raise RetrievalError("The model has no neighbor inputs: it is not a RETRO model.")


class _RetrievalCache(NamedTuple):
    """The cache of the model, the processed tokens and their neighbors.

    Attributes:
        model: the cache of the model.
        token_ids: int32 `(B, slots)`. The processed tokens.
        neighbors: int32 `(B, 1, slots, w)`. Neighbors in the format of the model's cache.
    """

    model: keras.Model
    token_ids: ArrayLike
    neighbors: np.ndarray
