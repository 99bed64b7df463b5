"""The decoding loop, which serves every model, search and runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.protocols import DecodingSteps, Search, Source


def decode(
    steps: DecodingSteps, request: DecodingRequest, search: Search, source: Source | None = None
) -> Iterator[list[list[int]]]:
    """Runs a search with a model.

    Args:
        steps: `protocols.DecodingSteps`, the model.
        request: `DecodingRequest`.
        search: `protocols.Search`, as `sampler.search(request)` returns it.
        source: `(token_ids, padding_mask)` of an encoder-decoder, or `(features,)`, or None.

    Yields:
        `search.emitted` after every step. At the end, `search.results()` returns the sequences.
    """
    token_ids, lengths = pad(request.prompts), request.lengths
    length = cache_length(request, search.lookahead)
    cache = steps.init_cache(len(request.prompts), length, source)
    output, cache = steps.prefill(token_ids, lengths, cache)
    saved = cache if search.saves_cache else {}
    while True:
        model_input = search.advance(output)
        yield search.emitted
        if model_input is None:
            return
        if model_input.rows is not None:
            cache = steps.take_rows(saved if model_input.from_saved else cache, model_input.rows)
        output, cache = steps.decode_step(model_input.token_ids, cache, model_input.cache_index)
        saved = cache if model_input.save else saved


def cache_length(request: DecodingRequest, lookahead: int = 0) -> int:
    """Returns the number of cache slots that a request needs; a search may read `lookahead` tokens more."""
    # The model never reads the last new token.
    return int(request.lengths.max()) + request.max_new_tokens - 1 + lookahead


def pad(rows: ArrayLike, value: int = 0) -> np.ndarray:
    """Returns lists of different lengths as an int32 array `(B, T)`, padded on the right."""
    padded = np.full((len(rows), max(map(len, rows))), value, "int32")
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return padded
