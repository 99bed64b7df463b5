"""Generation that retrieves as chunks fill, in Keras and in every runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.generation.generator import Generator
from keras_transformer.retrieval.errors import RetrievalError

if TYPE_CHECKING:
    from keras_transformer.retrieval.database import ChunkDatabase

# Suffix of the name of the neighbors' tensor in a cache: see `blocks.NeighborEncoder`.
_NEIGHBOURS = "neighbor_token_ids"


def with_retrieval(
    generator: Any, database: ChunkDatabase, num_neighbors: int = 2, neighbor_length: int | None = None
) -> Any:
    """A generator that retrieves the neighbors of each complete chunk of its text.

    Each chunk of the prompt and of the generated text is looked up as soon as it is complete. Samplers, batches
    of prompts of different lengths and streams are supported as before.

    Args:
        generator: `LanguageModel.generator()` of a `models.RETRO`, or the language model of a bundle that was exported from
            one.
        database: `ChunkDatabase`, of the tokens of the model.
        num_neighbors: int >= 1. k of the model.
        neighbor_length: int >= 1, or None for `2 · chunk_size`. r of the model.

    Returns:
        `generation.Generator`.

    Raises:
        RetrievalError: when it generates: the neighbors do not fit the cache of the model.

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
    """`prefill` and `decode_step` of a model, around which neighbors are put into its cache. See `generation.loop.decode`.

    Args:
        steps: those of the model, in Keras or in a runtime.
        database: `ChunkDatabase`, or whatever has its `chunk_size` and `neighbors`.
        num_neighbors: int >= 1. k.
        neighbor_length: int >= 1, or None for `2 · chunk_size`. r.
    """

    def __init__(
        self, steps: Any, database: ChunkDatabase, num_neighbors: int = 2, neighbor_length: int | None = None
    ) -> None:
        self.steps, self.database = steps, database
        self.num_neighbors = num_neighbors
        self.neighbor_length = neighbor_length or 2 * database.chunk_size

    def __getattr__(self, name: Any):
        if name in ("steps", "generate"):  # The loop as one graph does not search a database.
            raise AttributeError(name)
        return getattr(self.steps, name)

    def init_cache(self, batch_size: int, length: int, source: Any = None) -> Any:
        """The cache of the model, and what has been read: nothing."""
        cache = self.steps.init_cache(batch_size, length, source)
        slots, share = self._slab(cache)[1].shape[2:]
        wanted = -(-self.num_neighbors * self.neighbor_length // self.database.chunk_size)
        if share != wanted:
            raise RetrievalError(
                f"{self.num_neighbors} neighbors of {self.neighbor_length} tokens for each chunk of "
                f"{self.database.chunk_size} need {wanted} positions per slot; the model has {share}."
            )
        neighbors = np.zeros((batch_size, 1, slots, share), "int32")
        return _Cache(cache, np.zeros((batch_size, slots), "int32"), neighbors)

    def prefill(self, token_ids: Any, lengths: Any, cache: Any) -> tuple[Any, Any]:
        """Reads prompts, padded on the right."""
        cache = self._read(cache, token_ids, np.zeros(len(token_ids), "int32"), np.asarray(lengths))
        output, model_cache = self.steps.prefill(token_ids, lengths, cache.model)
        return output, cache._replace(model=model_cache)

    def decode_step(self, token_ids: Any, cache: Any, cache_index: Any) -> tuple[Any, Any]:
        """Reads new tokens."""
        index = np.asarray(cache_index)
        cache = self._read(cache, token_ids, index, index + token_ids.shape[1])
        output, model_cache = self.steps.decode_step(token_ids, cache.model, cache_index)
        return output, cache._replace(model=model_cache)

    def take_rows(self, cache: Any, rows: Any) -> Any:
        """The cache with selected rows."""
        rows = np.asarray(rows)
        return _Cache(self.steps.take_rows(cache.model, rows), cache.token_ids[rows], cache.neighbors[rows])

    def _read(self, cache: Any, token_ids: Any, starts: Any, ends: Any):
        """The cache with new tokens, and with the neighbors of the chunks that they complete."""
        size, texts, found = self.database.chunk_size, cache.token_ids.copy(), cache.neighbors
        wanted = []
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            texts[row, start:end] = token_ids[row, : end - start]
            wanted += [(row, chunk) for chunk in range(start // size, end // size)]
        if not wanted:
            return cache._replace(token_ids=texts)
        chunks = np.stack([texts[row, chunk * size : (chunk + 1) * size] for row, chunk in wanted])
        neighbors, mask = self.database.neighbors(chunks, self.num_neighbors, self.neighbor_length)
        # As `NeighborEncoder` reads them: 0 is padding, so all token ids are shifted by one.
        stored: np.ndarray = np.where(mask, neighbors + 1, 0).reshape(len(wanted), -1)
        share, found = found.shape[3], found.copy()
        stored = np.pad(stored, ((0, 0), (0, size * share - stored.shape[1]))).reshape(-1, size, share)
        for (row, chunk), tokens in zip(wanted, stored, strict=True):
            found[row, 0, chunk * size : (chunk + 1) * size] = tokens
        return _Cache(self._written(cache.model, found), texts, found)

    def _written(self, cache: Any, neighbors: Any):
        name, _ = self._slab(cache)
        if not hasattr(self.steps, "make_cache"):
            return {**cache, name: neighbors}
        # Copies: numpy arrays of a runtime may share its memory, which it frees with the old cache.
        arrays = {each: np.array(self.steps.as_numpy(tensor)) for each, tensor in cache.items() if each != name}
        return self.steps.make_cache({**arrays, name: neighbors.copy()})

    def _slab(self, cache: Any):
        for name, tensor in cache.items():
            if name.endswith(_NEIGHBOURS):
                return name, self.steps.as_numpy(tensor) if hasattr(self.steps, "as_numpy") else tensor
        raise RetrievalError("The model takes no neighbors: it is no RETRO.")


class _Cache(NamedTuple):
    """What the model has read, and what was found for it.

    Attributes:
        model: the cache of the model.
        token_ids: int32 `(B, slots)`: the texts.
        neighbors: int32 `(B, 1, slots, w)`, as in the cache of the model.
    """

    model: Any
    token_ids: Any
    neighbors: Any
