"""The stack of the Recurrent Memory Transformer: decoder blocks with memory tokens passed between segments."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.backend.kernels.loops import seeded_iterations
from keras_transformer.blocks.batch_statistics import refuse_batch_statistics
from keras_transformer.blocks.memory.memory_steps import SLABS, extend, label
from keras_transformer.layers.dropout import Dropout
from keras_transformer.recurrence.sequential import sequential_scan
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, Initializer, LayerLike, Outputs, Shape, Tensor


@serializable
class MemoryStack(CachedLayer):
    """Stack of the Recurrent Memory Transformer: decoder blocks with memory tokens around each segment.

    A sequence is processed in segments x_1, x_2, ... of S = `segment_length` tokens. With m memory vectors M_τ of segment τ,

        [_ ; y_τ ; M_{τ + 1}] = norm(blocks([M_τ ; x_τ ; M_τ] + P)).

    Attention is causal: tokens attend to the memory before them, and the copy of the memory after them attends to all; its
    outputs are the memory of the next segment. M_1 and the positions P of the `m + S + m` vectors are learned. Time grows
    with `T · (S + 2 m)`, with the segments in one sequential loop; memory, in training, with T.

    Args:
        blocks: list of `DecoderBlock`, or their configs, whose caches keep all keys.
        num_memory_tokens: int >= 1. m.
        segment_length: int >= 1. S.
        gradient_segments: int >= 1, or None for all. Truncation of backpropagation through time: segments, counted from the
            last, are grouped by this number, and no gradient flows from a group to the one before it.
        norm: layer after the blocks, or its config; None for none.
        learned_positions: bool. Whether to add P. Default True.
        dropout: float in [0, 1). Dropout rate of tokens and memory before the blocks.
        initializer: of the memory and the positions. Default: normal with standard deviation 0.02.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any. With a cache it covers
            the new tokens, which are padded on the right.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the number of tokens that each row has read before.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: sizes below 1; blocks with cross-attention, with a cache that does not keep all keys, or with batch
            norms or experts, whose statistics cannot be updated in a loop.

    The size of the cache is constant: the memory, and keys and values of the current segment. When a row enters a new
    segment, the memory after its last segment is computed first: `2 m` more tokens in that step.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.blocks import DecoderBlock
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = DecoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> layer = MemoryStack([block], num_memory_tokens=2, segment_length=3)
    >>> tuple(layer(np.ones((1, 7, 8))).shape)
    (1, 7, 8)

    Reference: Bulatov et al., Recurrent Memory Transformer, arXiv 2207.06881, section 3. The paper propagates gradients
    through the last `gradient_segments` segments only; here earlier segments are trained too, in groups of that size.
    """

    memory: keras.Variable
    positions: keras.Variable
    cache_is_rewindable = False

    def __init__(
        self,
        blocks: Sequence[LayerLike],
        num_memory_tokens: int,
        segment_length: int,
        gradient_segments: int | None = None,
        norm: LayerLike | None = None,
        learned_positions: bool = True,
        dropout: float = 0.0,
        initializer: Initializer = None,
        seed: int | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.blocks = [resolve(block, {}, keras.layers.Layer, argument="block") for block in blocks]
        self.num_memory_tokens = positive("num_memory_tokens", num_memory_tokens)
        self.segment_length = positive("segment_length", segment_length)
        self.gradient_segments = gradient_segments and positive("gradient_segments", gradient_segments)
        self.norm = resolve(norm, {}, keras.layers.Layer, argument="norm")
        self.learned_positions = learned_positions
        self.dropout = dropout
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)
        self._check()

    def _check(self):
        for block in self.blocks:
            if getattr(block, "cross_attention", None) is not None or not getattr(block, "cache_is_rewindable", True):
                raise ValueError(f"{block.name}: MemoryStack needs causal blocks whose caches keep all keys.")
        refuse_batch_statistics(self, "which is not possible segment by segment")

    def build(self, inputs_shape: Shape) -> None:
        width, memory = inputs_shape[-1], self.num_memory_tokens
        options = {"initializer": self.initializer.clone()}
        self.memory = self.add_weight(name="memory", shape=(memory, width), **options)
        if self.learned_positions:
            shape = (self.segment_length + 2 * memory, width)
            self.positions = self.add_weight(name="positions", shape=shape, initializer=self.initializer.clone())
        extended = (inputs_shape[0], None, width)
        for layer in (*self.blocks, *([] if self.norm is None else [self.norm])):
            build_once(layer, extended)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        if cache is None:
            return self._read(inputs, padding_mask, training)
        return extend(self, inputs, padding_mask, cache, cache_index)

    # Whole sequences.

    def _read(self, x, mask, training):
        (batch, length), size = ops.shape(x)[:2], self.segment_length
        count = block_count(length, size)
        parts = [x] if mask is None else [x, ops.cast(mask, "bool")]
        parts = [pad_length(part, 0, count * size - length) for part in parts]
        parts = [ops.reshape(part, (-1, count, size, *part.shape[2:])) for part in parts]
        parts = [ops.transpose(part, (1, 0, *range(2, len(part.shape)))) for part in parts]  # (n, B, S, ...)
        seeded = seeded_iterations(self, training)

        def step(index, carry, tokens, mask=None):
            with seeded(index):
                memory = self._cut_gradient(carry[0], index, count)
                output, memory = self._segment(memory, tokens, mask, training)
            return (memory,), output

        _, outputs = sequential_scan(step, (self.first_memory(batch),), tuple(parts), training)
        outputs = ops.reshape(ops.transpose(outputs, (1, 0, 2, 3)), (-1, count * size, x.shape[2]))
        return outputs[:, :length]

    def _segment(self, memory, tokens, mask, training):
        """Processes a segment `(B, S, D)` with its memory; returns the outputs of the tokens and the next memory."""
        count = self.num_memory_tokens
        x = ops.concatenate([memory, tokens, memory], axis=1)
        if mask is not None:
            always = ops.ones(ops.shape(memory)[:2], dtype="bool")
            mask = ops.concatenate([always, mask, always], axis=1)
        if self.learned_positions:
            x = x + ops.expand_dims(ops.cast(self.positions, x.dtype), 0)
        x = self._dropout_layer(x, training=training)
        for block in self.blocks:
            x = block(x, padding_mask=mask, training=training)
        x = x if self.norm is None else self.norm(x)
        return x[:, count:-count], x[:, -count:]

    def _cut_gradient(self, memory, index, count):
        """The memory before segment `index`, detached where a group of `gradient_segments` segments begins."""
        if self.gradient_segments is None:
            return memory
        ends = ops.equal(ops.mod(count - index, self.gradient_segments), 0)
        return ops.where(ops.logical_and(ends, index > 0), ops.stop_gradient(memory), memory)

    def first_memory(self, batch_size: int) -> Tensor:
        """Returns the learned memory before the first segment, `(B, m, D)`."""
        memory = ops.expand_dims(ops.cast(self.memory, self.compute_dtype), 0)
        return ops.broadcast_to(memory, (batch_size, *memory.shape[1:]))

    # New tokens, with a cache.

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: DType = None) -> Cache:
        """Returns the empty cache: the memory and the keys and values of one segment, for any `max_length`."""
        if not self.built:
            raise ValueError(f"{self.name}: build the layer before init_cache; the memory has the width of the tokens.")
        dtype = dtype or self.compute_dtype
        cache = {"memory": ops.zeros((batch_size, *self.memory.shape), dtype=dtype)}
        for index, block in enumerate(self.blocks):
            slots = block.init_cache(batch_size, self.num_memory_tokens + self.segment_length, dtype)
            if sorted(slots) != sorted(SLABS):
                raise ValueError(f"{block.name}: MemoryStack needs blocks that cache keys and values only.")
            cache |= {label(name, index): tensor for name, tensor in slots.items()}
        return cache

    def compute_output_spec(
        self, inputs: Tensor, *args: object, cache: Cache | None = None, **options: object
    ) -> Outputs:
        return self._output_spec(inputs.shape, cache)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **options: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "blocks": [serialize(block) for block in self.blocks],
            "num_memory_tokens": self.num_memory_tokens,
            "segment_length": self.segment_length,
            "gradient_segments": self.gradient_segments,
            "norm": serialize(self.norm),
            "learned_positions": self.learned_positions,
            "dropout": self.dropout,
            "initializer": keras.initializers.serialize(self.initializer),
            "seed": self.seed,
        }
