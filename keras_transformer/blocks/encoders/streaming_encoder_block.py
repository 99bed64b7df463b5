"""The encoder block that reads a sequence chunk by chunk."""

from __future__ import annotations

from typing import Any

from keras_transformer.attention import ChunkedAttention
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.blocks.encoders.encoder_block import EncoderBlock
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, DType, LayerLike, Outputs, Tensor


@serializable
class StreamingEncoderBlock(CachedLayer, EncoderBlock):
    """Encoder block of chunked attention: whole sequences at once, or chunk by chunk with a cache of fixed size.

    Both give the same outputs: a token sees its own chunk and the chunks before that the mechanism says.

    Args:
        mixer: `MultiHeadAttention` whose mechanism is a `ChunkedAttention` with `reads_whole_chunks=True`.
        feedforward: see `EncoderBlock`, as all other arguments.
        **kwargs: other arguments of `EncoderBlock`.

    Call arguments:
        inputs: float `(B, T, D)`; with a cache, one chunk.
        padding_mask: boolean `(B, T)`, True = a real token; with a cache, padding is on the right and ends the row.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: number of tokens that each row has read before, whole chunks.

    Returns:
        `(B, T, D)`; with a cache, `(that, next_cache)`.

    Raises:
        ValueError: a mixer of another kind.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> mixer = MultiHeadAttention(2, 4, mechanism=ChunkedAttention(3, chunks_before=2, reads_whole_chunks=True))
    >>> block = StreamingEncoderBlock(mixer, DenseFeedForward(16))
    >>> x = np.random.default_rng(0).normal(size=(1, 12, 8)).astype("float32")
    >>> cache, chunks = block.init_cache(1), []
    >>> for start in range(0, 12, 3):
    ...     output, cache = block(x[:, start : start + 3], cache=cache, cache_index=start)
    ...     chunks.append(output)
    >>> bool(np.abs(np.concatenate(chunks, axis=1) - block(x)).max() < 1e-6)
    True

    Reference: Zhang et al., Transformer Transducer, arXiv 2002.02562, section 3.4 (limited context), with a context of whole
    chunks, as Chen et al., arXiv 2010.11395, section 3.
    """

    reads_chunks = True

    def __init__(self, mixer: LayerLike, feedforward: LayerLike, **kwargs: Any) -> None:
        super().__init__(mixer, feedforward, **kwargs)
        mechanism = getattr(self.mixer, "mechanism", None)
        if not isinstance(mechanism, ChunkedAttention) or not mechanism.reads_whole_chunks:
            raise ValueError(
                "The mixer must be a MultiHeadAttention with mechanism=ChunkedAttention(..., reads_whole_chunks=True). "
                f"Received: {self.mixer!r} with {mechanism!r}"
            )
        self.chunk_length = mechanism.chunk_length
        self.memory_length = mechanism.chunks_before * mechanism.chunk_length

    def init_cache(self, batch_size: int, dtype: DType = None) -> Cache:
        """Returns the empty cache of the chunks before: "recent_keys" and "recent_values", `(B, memory, K, H)`."""
        return self.mixer.init_cache(batch_size, self.memory_length, dtype) if self.memory_length else {}

    def call(  # type: ignore[override]
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        if cache is None:
            return super().call(inputs, padding_mask=padding_mask, training=training)
        next_cache: Cache = {}
        # Without chunks before, a chunk is a sequence of its own.
        cached = {"cache": cache, "cache_index": cache_index, "query_mask": padding_mask}

        def mix(x):
            if not self.memory_length:
                return self.mixer(x, x, value_mask=padding_mask, training=training)
            mixed, own = self.mixer(x, x, **cached, training=training)
            next_cache.update(own)
            return mixed

        return self._apply_sublayers(inputs, mix, padding_mask, training), next_cache

    def compute_output_spec(self, inputs: Tensor, *args: Any, cache: Cache | None = None, **options: Any) -> Outputs:
        return self._output_spec(inputs.shape, cache)
