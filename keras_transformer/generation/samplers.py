"""Samplers: from the logits of the next token to a token."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from keras_transformer.generation.filters import draw, keep_min_p, keep_top_k, keep_top_p, most_likely
from keras_transformer.generation.search.token_search import TokenSearch
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.protocols import Search


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Always the most likely token.

    Args: none.

    Call arguments:
        ops: array namespace, `keras.ops` or `arrays.numpy_ops`.
        logits: float32 `(B, V)`.
        uniforms: not used.

    Returns:
        Tokens, int32 `(B,)`; the first of equally likely ones.

    Raises: nothing.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.generation.arrays import numpy_ops
    >>> Greedy()(numpy_ops, np.array([[0.1, 2.0, 0.3]])).tolist()
    [1]
    """

    # Whether it needs uniforms. A sampler that says so is a function of arrays alone, and may be part of a graph.
    is_random = False

    def __call__(self, ops: Any, logits: Tensor, uniforms: Tensor = None) -> Tensor:
        return most_likely(ops, logits)

    def filter(self, ops: Any, logits: Tensor) -> Tensor:
        """Logits whose softmax is the distribution that tokens are drawn from: all on the most likely."""
        best = ops.expand_dims(most_likely(ops, logits), 1)
        indices = ops.expand_dims(ops.arange(logits.shape[-1], dtype="int32"), 0)
        return ops.where(indices == best, 0.0, float("-inf"))

    def search(self, request: DecodingRequest) -> Search:
        """The course of one request."""
        return TokenSearch(self, request)


@dataclasses.dataclass(frozen=True)
class Random:
    """Draws from the model's distribution, sharpened and cut as asked: temperature first, then k, p and min-p.

    Args:
        temperature: float > 0. Logits are divided by it.
        top_k: int >= 1 or None. Only the k most likely tokens.
        top_p: float in (0, 1] or None. Only the smallest set of most likely tokens with at least this probability.
        min_p: float in [0, 1] or None. Only tokens at least this share as likely as the most likely one.

    Call arguments:
        ops: array namespace, `keras.ops` or `arrays.numpy_ops`.
        logits: float32 `(B, V)`.
        uniforms: float32 `(B,)` in [0, 1).

    Returns:
        Tokens, int32 `(B,)`.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.generation.arrays import numpy_ops
    >>> logits = np.log(np.array([[0.5, 0.3, 0.2]]))
    >>> [Random(top_k=2)(numpy_ops, logits, np.array([u])).item() for u in (0.0, 0.6, 0.7, 0.99)]
    [0, 0, 1, 1]

    Reference: see `filters`.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                f"temperature must be above 0 (sampler='greedy' is its limit). Received: {self.temperature}"
            )
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 1):
            raise ValueError(f"top_k must be a positive integer. Received: {self.top_k!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1]. Received: {self.top_p}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must lie in [0, 1]. Received: {self.min_p}")

    is_random = True

    def __call__(self, ops: Any, logits: Tensor, uniforms: Tensor) -> Tensor:
        return draw(ops, self.filter(ops, logits), uniforms)

    def filter(self, ops: Any, logits: Tensor) -> Tensor:
        """Logits whose softmax is the distribution that tokens are drawn from."""
        logits = logits / self.temperature
        if self.top_k is not None:
            logits = keep_top_k(ops, logits, self.top_k)
        # Rounded sums reach 1 before the last token.
        if self.top_p is not None and self.top_p < 1:
            logits = keep_top_p(ops, logits, self.top_p)
        if self.min_p is not None:
            logits = keep_min_p(ops, logits, self.min_p)
        return logits

    def search(self, request: DecodingRequest) -> Search:
        """The course of one request."""
        return TokenSearch(self, request)
