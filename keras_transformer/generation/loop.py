"""The one decoding loop: it serves every model, every search and every runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.protocols import DecodingSteps, Search, Source


def decode(
    steps: DecodingSteps, request: DecodingRequest, search: Search, source: Source | None = None
) -> Iterator[list[list[int]]]:
    """Runs a search over a model.

    Args:
        steps: the model. It has `init_cache(batch_size, length, source)`, `prefill(token_ids, lengths, cache)` and
            `decode_step(token_ids, cache, cache_index)`, which return `(ModelOutput, cache)`, and `take_rows(cache, rows)`.
        request: `DecodingRequest`.
        search: as `sampler.search(request)` returns.
        source: `(token_ids, padding_mask)` of an encoder-decoder, or `(features,)`, or None.

    Yields:
        `search.emitted` after every step; in the end `search.results()` has the texts.
    """
    token_ids, lengths = pad(request.prompts), request.lengths
    length = cache_length(request, getattr(search, "lookahead", 0))
    cache = steps.init_cache(len(request.prompts), length, source)
    output, cache = steps.prefill(token_ids, lengths, cache)
    kept = cache if getattr(search, "keeps", False) else {}
    while True:
        model_input = search.advance(output)
        yield search.emitted
        if model_input is None:
            return
        if model_input.rows is not None:
            cache = steps.take_rows(kept if model_input.from_kept else cache, model_input.rows)
        output, cache = steps.decode_step(model_input.token_ids, cache, model_input.cache_index)
        kept = cache if model_input.keep else kept


def cache_length(request: DecodingRequest, lookahead: int = 0) -> int:
    """How many tokens a model has to hold; a search may read `lookahead` further."""
    # What is chosen last is never read.
    return int(request.lengths.max()) + request.max_new_tokens - 1 + lookahead


def pad(rows: Any, value: int = 0) -> np.ndarray:
    """Lists of unequal length as one array, int32 `(B, T)`, padded on the right."""
    padded = np.full((len(rows), max(map(len, rows))), value, "int32")
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return padded
