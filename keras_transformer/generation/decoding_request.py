"""What is asked for, and what the loop and a search say to each other."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class ModelInput(NamedTuple):
    """What a search wants the model to read next. R rows: the prompts, or several for each.

    Attributes:
        token_ids: int32 `(R, T)`.
        cache_index: int32 `(R,)`: how many tokens each row has read before.
        rows: int `(R,)`: which row of the cache each continues; None for its own.
        from_kept: bool. Whether they are rows of the cache that was kept, not of the last one; `rows` are given then.
        keep: bool. Whether the cache is kept, as it is when this has been read. A search that `keeps` begins with that after
            the prompts.
    """

    token_ids: Any
    cache_index: Any
    rows: Any = None
    from_kept: bool = False
    keep: bool = False


class ModelOutput(NamedTuple):
    """What the model says of the tokens it was fed.

    Attributes:
        logits: float32 `(R, T, V)`; after the prompt `(R, 1, V)`, of its last token.
        hidden_states: float `(R, T, D)`: what the head sees, of every token read; after the prompt `(R, 1, D)`, of its last
            token, where the model has a `PrefillExit`.
    """

    logits: Any
    hidden_states: Any


@dataclasses.dataclass(frozen=True)
class DecodingRequest:
    """One request, checked: what every search goes by.

    Attributes:
        prompts: list of int32 arrays, the tokens that the decoder begins with; never empty.
        max_new_tokens: int >= 1.
        end_ids: tuple of the tokens that end a text; empty for none.
        ends: function of the new tokens (a list) that tells whether a stop sequence has come; None without any.
        seeds: a `numpy.random.SeedSequence` for each prompt, so that what one draws does not depend on the others.
        repetition_penalty: float > 0.
        source: `(token_ids, padding_mask)` of an encoder-decoder, or `(features,)`, or None.
        decode: function of token ids to text, where prompts are text; None where they are tokens.
        cache_is_rewindable: bool. Whether the cache can go back to an earlier index.
    """

    prompts: list
    max_new_tokens: int
    seeds: list
    end_ids: tuple = ()
    ends: Callable | None = None
    repetition_penalty: float = 1.0
    source: Any = None
    decode: Callable | None = None
    cache_is_rewindable: bool = True

    @property
    def lengths(self):
        """int32 `(B,)`: the tokens of each prompt."""
        return np.array([len(prompt) for prompt in self.prompts], "int32")

    def is_over(self, tokens):
        """Whether a text, given by its new tokens, is complete."""
        if tokens[-1] in self.end_ids or len(tokens) == self.max_new_tokens:
            return True
        return self.ends is not None and self.ends(tokens)

    @property
    def is_plain(self):
        """Whether there is nothing but a sampler, a number of tokens and an end token."""
        return self.ends is None and self.repetition_penalty == 1.0

    def uniforms(self, count):
        """float32 `(B, count)` in [0, 1): the randomness of the first `count` tokens of each row."""
        return np.stack([np.random.default_rng(seed).random(count, dtype="float32") for seed in self.seeds])
