"""A validated decoding request, and the messages between the decoding loop and a search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import Source


class ModelInput(NamedTuple):
    """The tokens that the model reads in the next step.

    R is the number of batch rows: one or several for each prompt.

    Attributes:
        token_ids: int32 `(R, T)`.
        cache_index: int32 `(R,)`. Number of tokens that each row has read before.
        rows: int `(R,)`. Cache row that each row continues; None for the same row.
        from_saved: bool. Whether `rows` index the saved cache instead of the current one; requires `rows`.
        save: bool. Whether the cache is saved after this step. A search with `saves_cache` starts with a saved cache after
            the prompts.
    """

    token_ids: Any
    cache_index: Any
    rows: Any = None
    from_saved: bool = False
    save: bool = False


class ModelOutput(NamedTuple):
    """The outputs of the model for the tokens that it has read.

    Attributes:
        logits: float32 `(R, T, V)`; after the prompts `(R, 1, V)`, of the last token.
        hidden_states: float `(R, T, D)`. Inputs of the head, for every token; after the prompts `(R, 1, D)`, of the last
            token, if the model has a `PrefillExit`.
    """

    logits: Any
    hidden_states: Any


@dataclasses.dataclass(frozen=True)
class DecodingRequest:
    """A batch of prompts with validated decoding parameters.

    Attributes:
        prompts: list of int32 arrays. Token ids at the start of the decoder sequence; never empty.
        max_new_tokens: int >= 1.
        seeds: list of `numpy.random.SeedSequence`, one for each prompt, so that samples do not depend on the other prompts.
        end_ids: tuple of int. Tokens that end a sequence; empty for none.
        ends: function of the list of new tokens that returns whether a stop sequence is complete; None without any.
        repetition_penalty: float > 0.
        source: `(token_ids, padding_mask)` of an encoder-decoder, or `(features,)`, or None.
        decode: function of token ids that returns text, for text prompts; None for token prompts.
        cache_is_rewindable: bool. Whether the cache can go back to an earlier index.
    """

    prompts: list[Any]
    max_new_tokens: int
    seeds: list[Any]
    end_ids: tuple[int, ...] = ()
    ends: Callable[[list[int]], bool] | None = None
    repetition_penalty: float = 1.0
    source: Source | None = None
    decode: Callable[[list[int]], Any] | None = None
    cache_is_rewindable: bool = True

    @property
    def lengths(self) -> np.ndarray:
        """int32 `(B,)`: number of tokens of each prompt."""
        return np.array([len(prompt) for prompt in self.prompts], "int32")

    def is_finished(self, tokens: list[int]) -> bool:
        """Returns whether a sequence with these new tokens is complete."""
        if tokens[-1] in self.end_ids or len(tokens) == self.max_new_tokens:
            return True
        return self.ends is not None and self.ends(tokens)

    @property
    def is_plain(self) -> bool:
        """bool: whether the request has neither stop sequences nor a repetition penalty."""
        return self.ends is None and self.repetition_penalty == 1.0

    def uniforms(self, count: int) -> np.ndarray:
        """Returns uniform random numbers for the first `count` tokens of each row, float32 `(B, count)` in [0, 1)."""
        return np.stack([np.random.default_rng(seed).random(count, dtype="float32") for seed in self.seeds])
