"""Decoding steps that go on from what a conversation has read already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.generation.errors import GenerationError
from keras_transformer.utils.types import ArrayLike, Cache

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import Source

# Slots of the first cache; a full one is replaced by one of twice the size.
_FEWEST_SLOTS = 256
_LARGEST_PIECE = 512


class ConversationSteps:
    """The steps of a model for one sequence that grows. Implements `generation.protocols.DecodingSteps`.

    `prefill` reads only the tokens that follow what the cache has: where the tokens differ from those, a rewindable cache
    goes back to there, and another one is built from the start.

    Args:
        steps: the `DecodingSteps` of a decoder, which have `grow(cache, length)` too.

    Attributes:
        tokens: list of int: what the cache has read.
        num_read: int. Number of tokens that the model has read in all turns.
    """

    def __init__(self, steps: Any) -> None:
        self.spec = steps.spec
        self.tokens: list[int] = []
        self.num_read = 0
        self._steps = steps
        self._cache: Cache | None = None
        self._slots, self._needed = 0, 0

    def init_cache(self, batch_size: int, length: int, source: Source | None = None) -> Cache:
        """Remembers how many slots are needed: `prefill` provides them."""
        if batch_size != 1 or source is not None:
            raise GenerationError("A conversation has one prompt at a time, and no source.")
        self._needed = length
        return {}

    def prefill(self, token_ids: np.ndarray, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads what is new in a prompt `(1, T)`."""
        del cache
        tokens = token_ids[0, : int(np.asarray(lengths)[0])].tolist()
        start = self._start(tokens)
        cache, self._cache = self._cache_from(start), None  # After an error the conversation is read again.
        if start == 0:
            output, cache = self._steps.prefill(np.array([tokens], "int32"), np.array([len(tokens)], "int32"), cache)
        else:
            for begin, end in _pieces(start, len(tokens)):
                piece, index = np.array([tokens[begin:end]], "int32"), np.array([begin], "int32")
                output, cache = self._steps.decode_step(piece, cache, index)
            output = ModelOutput(output.logits[:, -1:], output.hidden_states[:, -1:])
        self.num_read += len(tokens) - start
        return output, self._keep(tokens, cache)

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads further tokens `(1, T)`."""
        tokens, index = np.asarray(token_ids)[0].tolist(), int(np.asarray(cache_index)[0])
        self._cache = None
        output, cache = self._steps.decode_step(token_ids, cache, cache_index)
        self.num_read += len(tokens)
        return output, self._keep([*self.tokens[:index], *tokens], cache)

    def take_rows(self, cache: Cache, rows: ArrayLike) -> Cache:
        """Refuses every choice but that of the only row."""
        if np.asarray(rows).tolist() != [0]:
            raise GenerationError("A conversation has one sequence: use a sampler such as greedy or random.")
        return cache

    def _keep(self, tokens: list[int], cache: Cache) -> Cache:
        self.tokens, self._cache = tokens, cache
        return cache

    def _start(self, tokens: list[int]) -> int:
        """How many of the tokens need not be read again. The last one is read, for its logits."""
        if self._cache is None:
            return 0
        pairs = zip(self.tokens, tokens[:-1], strict=False)
        same = next((place for place, (old, new) in enumerate(pairs) if old != new), None)
        common = min(len(self.tokens), len(tokens) - 1) if same is None else same
        return common if self.spec.cache_is_rewindable or common == len(self.tokens) else 0

    def _cache_from(self, start: int) -> Cache:
        """The cache with enough slots; an empty one if nothing of it is kept."""
        slots = self._slots
        if self._needed > slots:
            slots = max(_FEWEST_SLOTS, 1 << (self._needed - 1).bit_length())
            slots = max(self._needed, min(slots, self.spec.max_length or slots))
        if start == 0 or self._cache is None:
            cache = self._steps.init_cache(1, slots)
        else:
            cache = self._cache if slots == self._slots else self._steps.grow(self._cache, slots)
        self._slots = slots
        return cache


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of sizes that are powers of two, so that few shapes are compiled."""
    while start < end:
        size = min(_LARGEST_PIECE, 1 << ((end - start).bit_length() - 1))
        yield start, start + size
        start += size
