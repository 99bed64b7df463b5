"""A stack of decoder blocks that reads segment by segment, and hands on what it remembers."""

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.blocks.batch_statistics import refuse_batch_statistics
from keras_transformer.blocks.memory.loop_seeds import seeded_iterations
from keras_transformer.blocks.memory.memory_steps import SLABS, extend, label
from keras_transformer.recurrence.sequential import sequential_scan
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize


@serializable
class MemoryStack(CachedLayer):
    """Decoder blocks with memory tokens around each segment: the Recurrent Memory Transformer.

    A row is read in segments x_1, x_2, ... of S = `segment_length` tokens. With m memory vectors M_τ before segment τ,

        [_ ; y_τ ; M_{τ + 1}] = norm(blocks([M_τ ; x_τ ; M_τ] + P)),

    causal as the blocks are: tokens read the memory in front of them; that behind them, the same vectors, reads them all,
    and what becomes of it goes to the next segment. M_1 and the positions P of the `m + S + m` places are learned. Time
    grows with `T · (S + 2 m)`, segments one after the other in one loop; memory, in training, with T.

    Args:
        blocks: list of `DecoderBlock`, or their configs, whose caches keep all keys.
        num_memory_tokens: int >= 1. m.
        segment_length: int >= 1. S.
        gradient_segments: int >= 1, or None for all. So many segments in a row, counted from the last, learn together: a
            gradient crosses between them, and ends before the first.
        norm: layer at the end, or its config; None for none.
        learned_positions: bool. Whether there is P. Default True.
        dropout: float in [0, 1). Of tokens and memory before the blocks.
        initializer: of the memory and the positions. Default: normal, with a deviation of 0.02.
        seed: int or None. Of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any. With a cache it is
            over the new tokens, padded on the right.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: how many tokens each row has read before.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: sizes below 1; blocks with cross-attention, with a cache that does not keep all keys, or with norms over
            the batch, which cannot be counted inside the loop.

    The cache is of one size, whatever the length: the memory, and keys and values of the current segment. Where a row enters
    a new segment, its memory behind the last one is read first: `2 m` more tokens, in that step alone.

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

    Reference: Bulatov et al., Recurrent Memory Transformer, arXiv 2207.06881, section 3. There gradients cross the last
    `gradient_segments` segments, and none of those before; here segments before are taken together likewise.
    """

    cache_is_rewindable = False

    def __init__(
        self,
        blocks,
        num_memory_tokens,
        segment_length,
        gradient_segments=None,
        norm=None,
        learned_positions=True,
        dropout=0.0,
        initializer=None,
        seed=None,
        **kwargs,
    ):
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
        self._dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)
        self._check()

    def _check(self):
        for block in self.blocks:
            if getattr(block, "cross_attention", None) is not None or not getattr(block, "cache_is_rewindable", True):
                raise ValueError(f"{block.name}: memory stands around causal blocks whose caches keep all keys.")
        refuse_batch_statistics(self, "which it cannot do segment by segment")

    def build(self, inputs_shape):
        width, memory = inputs_shape[-1], self.num_memory_tokens
        options = {"initializer": self.initializer.clone()}
        self.memory = self.add_weight(name="memory", shape=(memory, width), **options)
        if self.learned_positions:
            shape = (self.segment_length + 2 * memory, width)
            self.positions = self.add_weight(name="positions", shape=shape, initializer=self.initializer.clone())
        extended = (inputs_shape[0], None, width)
        for layer in (*self.blocks, *([] if self.norm is None else [self.norm])):
            build_once(layer, extended)

    def call(self, inputs, padding_mask=None, cache=None, cache_index=None, training=None):
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        if cache is None:
            return self._read(inputs, padding_mask, training)
        return extend(self, inputs, padding_mask, cache, cache_index)

    # Whole rows.

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

        _, outputs = sequential_scan(step, (self.first_memory(batch),), parts, training)
        outputs = ops.reshape(ops.transpose(outputs, (1, 0, 2, 3)), (-1, count * size, x.shape[2]))
        return outputs[:, :length]

    def _segment(self, memory, tokens, mask, training):
        """One segment `(B, S, D)` between its memory, to what its tokens and the memory behind them become."""
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
        """The memory before segment `index`, detached where a multiple of `gradient_segments` is still to come."""
        if self.gradient_segments is None:
            return memory
        ends = ops.equal(ops.mod(count - index, self.gradient_segments), 0)
        return ops.where(ops.logical_and(ends, index > 0), ops.stop_gradient(memory), memory)

    def first_memory(self, batch_size):
        """What stands before the first segment, `(B, m, D)`."""
        memory = ops.expand_dims(ops.cast(self.memory, self.compute_dtype), 0)
        return ops.broadcast_to(memory, (batch_size, *memory.shape[1:]))

    # New tokens, with a cache.

    def init_cache(self, batch_size, max_length=None, dtype=None):
        """The memory and one segment's keys and values, all zeros, of one size for any `max_length`."""
        if not self.built:
            raise ValueError(f"{self.name} keeps a memory as wide as its tokens: build it first.")
        dtype = dtype or self.compute_dtype
        cache = {"memory": ops.zeros((batch_size, *self.memory.shape), dtype=dtype)}
        for index, block in enumerate(self.blocks):
            slots = block.init_cache(batch_size, self.num_memory_tokens + self.segment_length, dtype)
            if sorted(slots) != sorted(SLABS):
                raise ValueError(f"{block.name}: memory stands around blocks that cache keys and values alone.")
            cache |= {label(name, index): tensor for name, tensor in slots.items()}
        return cache

    def compute_output_spec(self, inputs, *args, cache=None, **options):
        return self._output_spec(inputs.shape, cache)

    def compute_output_shape(self, inputs_shape, *args, **options):
        return inputs_shape

    def get_config(self):
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
