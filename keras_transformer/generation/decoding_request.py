"""A validated decoding request, and the messages between the decoding loop and a search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.filters import penalize_repetition
from keras_transformer.utils.types import ArrayLike, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.adjustment import LogitAdjustment
    from keras_transformer.generation.grammar.constraint import Constraint
    from keras_transformer.generation.protocols import Source


def penalize_rows(logits: Tensor, sequences: Iterable[Sequence[int]], penalty: float) -> Tensor:
    """Applies `filters.penalize_repetition` for the tokens that each row has read.

    Args:
        logits: float `(R, V)`.
        sequences: iterable of R lists of token ids. It is not consumed if the penalty is 1.
        penalty: float > 0.

    Returns:
        Logits, float `(R, V)`.

    Example:

    >>> penalize_rows(np.array([[2.0, -1.0, 4.0]]), [[0, 1]], penalty=2.0).tolist()
    [[1.0, -2.0, 4.0]]
    """
    if penalty == 1.0:
        return logits
    seen = np.zeros(logits.shape, bool)
    for row, tokens in zip(seen, sequences, strict=True):
        row[tokens] = True
    return penalize_repetition(numpy_ops, logits, seen, penalty)


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

    token_ids: ArrayLike
    cache_index: ArrayLike
    rows: ArrayLike | None = None
    from_saved: bool = False
    save: bool = False


class ModelOutput(NamedTuple):
    """The outputs of the model for the tokens that it has read.

    Attributes:
        logits: float32 `(R, T, V)`; after the prompts `(R, 1, V)`, of the last token.
        hidden_states: float `(R, T, D)`. Inputs of the head, for every token; after the prompts `(R, 1, D)`, of the last
            token, if the model has a `PrefillExit`.
    """

    logits: ArrayLike
    hidden_states: ArrayLike


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
        constraint: `Constraint`, which excludes the tokens that a grammar does not allow; None without a grammar.
        adjustment: `LogitAdjustment`, or None.
    """

    prompts: list[np.ndarray]
    max_new_tokens: int
    seeds: list[np.random.SeedSequence]
    end_ids: tuple[int, ...] = ()
    ends: Callable[[list[int]], bool] | None = None
    repetition_penalty: float = 1.0
    source: Source | None = None
    decode: Callable[[list[int]], str] | None = None
    cache_is_rewindable: bool = True
    constraint: Constraint | None = None
    adjustment: LogitAdjustment | None = None

    @property
    def lengths(self) -> np.ndarray:
        """int32 `(B,)`: number of tokens of each prompt."""
        return np.array([len(prompt) for prompt in self.prompts], "int32")

    def is_finished(self, tokens: list[int]) -> bool:
        """Returns whether a sequence with these new tokens is complete."""
        return len(tokens) == self.max_new_tokens or self.is_stopped(tokens)

    def is_stopped(self, tokens: list[int]) -> bool:
        """Returns whether a sequence has its end: an end token, a stop sequence, or the end of its grammar."""
        if tokens[-1] in self.end_ids or (self.ends is not None and self.ends(tokens)):
            return True
        return self.constraint is not None and self.constraint.is_complete(tokens)

    @property
    def is_plain(self) -> bool:
        """bool: whether the request has neither stop sequences, nor a grammar, nor anything that changes logits."""
        return self.ends is None and not self._changes_logits

    @property
    def _changes_logits(self) -> bool:
        return self.repetition_penalty != 1.0 or self.constraint is not None or self.adjustment is not None

    def process_logits(self, logits: ArrayLike, rows: Iterable[tuple[int, Sequence[int] | None]]) -> Any:
        """Applies the repetition penalty, the adjustment and the grammar to logits.

        Args:
            logits: float `(R, V)`.
            rows: for each of the R rows the index of its prompt and its new tokens; None for a row that is not used. The
                iterable is not consumed if there is nothing to apply.

        Returns:
            Logits, float `(R, V)`.
        """
        if not self._changes_logits:
            return logits
        rows = list(rows)
        sequences = ([*self.prompts[prompt], *(tokens or ())] for prompt, tokens in rows)
        logits = penalize_rows(logits, sequences, self.repetition_penalty)
        if self.adjustment is not None:
            logits = self.adjustment.apply(np.asarray(logits), [tokens for _, tokens in rows])
        return logits if self.constraint is None else self.constraint.apply(logits, [tokens for _, tokens in rows])

    def uniforms(self, count: int) -> np.ndarray:
        """Returns uniform random numbers for the first `count` tokens of each row, float32 `(B, count)` in [0, 1)."""
        return np.stack([np.random.default_rng(seed).random(count, dtype="float32") for seed in self.seeds])
