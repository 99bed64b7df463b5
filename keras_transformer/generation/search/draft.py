"""The draft model of speculative decoding, its cache, and what both models' logits become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.loop import cache_length, pad
from keras_transformer.generation.repetition import penalize_rows
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.protocols import DecodingSteps


class Draft:
    """Guesses what comes next.

    Its cache is wound back before every guess to where the text is certain: the last two tokens are read again, as it may
    not have read them, and whatever stands behind is written over.

    Args:
        steps: the draft model, as `loop.decode` wants a model.
        sampler: has `filter`.
        request: `DecodingRequest`.
    """

    def __init__(self, steps: DecodingSteps, sampler: Any, request: DecodingRequest) -> None:
        self.steps = steps
        self.sampler = sampler
        self.request = request
        self._cache: Cache = {}

    def guess(self, texts: Any, count: int, uniforms: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Draws `count` tokens after each text.

        Args:
            texts: list of lists of token ids: the prompts and what follows, at least one token.
            count: int >= 1. G.
            uniforms: float `(B, G)` in [0, 1).

        Returns:
            Tokens, int32 `(B, G)`, and the distributions that they were drawn from, float `(B, G, V)`.
        """
        if not self._cache:
            self._read_prompts()
        token_ids, index = window(texts, [len(text) - 2 for text in texts], 2, self.request)
        texts = [list(text) for text in texts]
        guesses, probabilities = [], []
        for each in range(count):
            output, self._cache = self.steps.decode_step(token_ids, self._cache, index)
            logits = np.asarray(output.logits)[:, -1]
            probabilities.append(distribution(logits, texts, self.sampler, self.request.repetition_penalty))
            guesses.append(draw_from(probabilities[-1], uniforms[:, each]))
            for text, guess in zip(texts, guesses[-1].tolist(), strict=True):
                text.append(guess)
            # Where a row is near its end, guesses behind it are not wanted and stay at its last place.
            token_ids, index = window(texts, [len(text) - 1 for text in texts], 1, self.request)
        return np.stack(guesses, axis=1), np.stack(probabilities, axis=1)

    def _read_prompts(self) -> None:
        token_ids = pad(self.request.prompts)
        cache = self.steps.init_cache(len(token_ids), cache_length(self.request), self.request.source)
        _, self._cache = self.steps.prefill(token_ids, self.request.lengths, cache)


def window(texts: Any, starts: Any, size: int, request: DecodingRequest) -> tuple[np.ndarray, np.ndarray]:
    """The `size` tokens of each text from `starts` on, or earlier, as far as the room of the request wants it.

    Returns:
        Token ids, int32 `(B, size)`, and where each row begins, int32 `(B,)`.
    """
    # The last token of a complete text is never read.
    ends = request.lengths + request.max_new_tokens - 1
    index = np.minimum(starts, ends - size)
    rows = [text[start : start + size] for text, start in zip(texts, index.tolist(), strict=True)]
    return pad([*rows, [0] * size])[:-1], index.astype("int32")


def distribution(logits: Tensor, texts: Any, sampler: Any, repetition_penalty: float) -> np.ndarray:
    """What the sampler draws tokens from: float `(R, V)`; `texts` are what the R rows have read."""
    logits = penalize_rows(logits, texts, repetition_penalty)
    return numpy_ops.softmax(sampler.filter(numpy_ops, logits))


def draw_from(probabilities: np.ndarray, uniforms: Tensor) -> np.ndarray:
    """One token a row by inversion, int32 `(R,)`; the probabilities need not sum to 1."""
    sums = np.cumsum(probabilities, axis=-1, dtype="float64")
    total = sums[:, -1]
    # Below the total even after rounding: a token of probability zero at the end is never reached.
    threshold = np.minimum(uniforms * total, np.nextafter(total, 0))
    return (sums <= threshold[:, None]).sum(axis=-1).astype("int32")
