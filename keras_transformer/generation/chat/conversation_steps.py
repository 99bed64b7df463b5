"""Decoding steps that go on from what a conversation has read already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.generation.errors import GenerationError
from keras_transformer.utils.types import ArrayLike, Cache

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import ConversationalSteps, Source


class ConversationSteps:
    """The steps of a model for one sequence that grows. Implements `generation.protocols.DecodingSteps`.

    `prefill` reads only the tokens that follow what the cache has, in one call: where the tokens differ from those, a
    rewindable cache goes back to there, and another one is built from the start.

    Args:
        steps: the `protocols.ConversationalSteps` of a decoder.

    Attributes:
        tokens: list of int: what the cache has read.
        num_read: int. Number of tokens that the model has read in all turns.
    """

    def __init__(self, steps: ConversationalSteps) -> None:
        self.spec = steps.spec
        self.tokens: list[int] = []
        self.num_read = 0
        self._steps = steps
        self._cache: Cache | None = None
        self._needed = 0

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
        start, kept = self._start(tokens), self._cache
        self._cache = None  # After an error the conversation is read again.
        cache = self._steps.init_cache(1, 1) if start == 0 or kept is None else kept
        cache = self._steps.grow(cache, max(self._needed, len(tokens)))
        output, cache = self._steps.extend(np.array([tokens[start:]], "int32"), cache, np.array([start], "int32"))
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
