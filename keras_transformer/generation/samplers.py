"""Samplers that select the next token from its logits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_transformer.generation.arrays import ArrayFunctions
from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.filters import draw, keep_min_p, keep_top_k, keep_top_p, most_likely
from keras_transformer.generation.protocols import Sampler, TokenSampler
from keras_transformer.generation.search.beam import BeamSearch
from keras_transformer.generation.search.contrastive import Contrastive
from keras_transformer.generation.search.token_search import TokenSearch
from keras_transformer.generation.search.tree_search import TreeSearch
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.protocols import Search


MIN_TEMPERATURE = 1e-4


@dataclasses.dataclass(frozen=True)
class Greedy(TokenSampler):
    """Greedy decoding: selects the most likely token.

    Args: none.

    Call arguments:
        ops: array namespace, `keras.ops` or `arrays.numpy_ops`.
        logits: float32 `(B, V)`.
        uniforms: ignored.

    Returns:
        Tokens, int32 `(B,)`; ties by index.

    Raises: nothing.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.generation.arrays import numpy_ops
    >>> Greedy()(numpy_ops, np.array([[0.1, 2.0, 0.3]])).tolist()
    [1]
    """

    # Marks a `TokenSampler`: a function of arrays, which can be compiled into a graph.
    is_random = False

    def __call__(self, ops: ArrayFunctions, logits: Tensor, uniforms: Tensor | None = None) -> Tensor:
        return most_likely(ops, logits)

    def filter(self, ops: ArrayFunctions, logits: Tensor) -> Tensor:
        """Returns logits whose softmax is 1 for the most likely token."""
        best = ops.expand_dims(most_likely(ops, logits), 1)
        indices = ops.expand_dims(ops.arange(logits.shape[-1], dtype="int32"), 0)
        return ops.where(indices == best, 0.0, float("-inf"))

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        return TokenSearch(self, request)


@dataclasses.dataclass(frozen=True)
class Random(TokenSampler):
    """Random sampling, with temperature, top-k, top-p and min-p, in this order.

    Args:
        temperature: float >= 1e-4. Logits are divided by it; a smaller one makes infinite logits in float32.
        top_k: int >= 1 or None. Samples from the k most likely tokens only.
        top_p: float in (0, 1] or None. Samples from the smallest set of most likely tokens with this total probability.
        min_p: float in [0, 1] or None. Samples from tokens with at least this fraction of the largest probability.

    Call arguments:
        ops: array namespace, `keras.ops` or `arrays.numpy_ops`.
        logits: float32 `(B, V)`.
        uniforms: float32 `(B,)` in [0, 1).

    Returns:
        Tokens, int32 `(B,)`.

    Raises:
        ValueError: an argument is out of range.

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
        if not MIN_TEMPERATURE <= self.temperature < float("inf"):
            raise ValueError(
                f"temperature must be at least {MIN_TEMPERATURE}; for the limit 0 use sampler='greedy'."
                f" Received: {self.temperature}"
            )
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 1):
            raise ValueError(f"top_k must be a positive integer. Received: {self.top_k!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1]. Received: {self.top_p}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be in [0, 1]. Received: {self.min_p}")

    is_random = True

    def __call__(self, ops: ArrayFunctions, logits: Tensor, uniforms: Tensor | None) -> Tensor:
        return draw(ops, self.filter(ops, logits), uniforms)

    def filter(self, ops: ArrayFunctions, logits: Tensor) -> Tensor:
        """Returns logits whose softmax is the distribution that tokens are drawn from."""
        logits = logits / self.temperature
        if self.top_k is not None:
            logits = keep_top_k(ops, logits, self.top_k)
        # Rounding makes cumulative sums reach 1 before the last token, so p = 1 is no filter.
        if self.top_p is not None and self.top_p < 1:
            logits = keep_top_p(ops, logits, self.top_p)
        if self.min_p is not None:
            logits = keep_min_p(ops, logits, self.min_p)
        return logits

    def search(self, request: DecodingRequest) -> Search:
        """Returns the search of one request."""
        return TokenSearch(self, request)


SAMPLERS: dict[str, type[Sampler]] = {
    "greedy": Greedy,
    "random": Random,
    "beam": BeamSearch,
    "contrastive": Contrastive,
    "tree_search": TreeSearch,
}


def resolve_sampler(sampler: str | Sampler) -> Sampler:
    """Returns a sampler from its name or an instance.

    Raises:
        GenerationError: unknown name (the message lists the valid ones), or not a sampler.
    """
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            raise GenerationError(f"Unknown sampler {sampler!r}. Valid names: {', '.join(SAMPLERS)}")
        return SAMPLERS[sampler]()
    if not isinstance(sampler, Sampler):
        raise GenerationError(f"Expected a sampler or one of {', '.join(SAMPLERS)}. Received: {sampler!r}")
    return sampler
