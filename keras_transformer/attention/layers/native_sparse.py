"""Native sparse attention (NSA): compressed blocks, selected blocks and a sliding window, weighted by gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import key_value_heads, positive
from keras_transformer.attention.cache.dense import check_key_mask, init_dense_cache, write_rows
from keras_transformer.attention.layers.block_compression import BlockCompression
from keras_transformer.attention.masks import Visibility, with_batch_axis
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mechanisms.sparse.local import LocalAttention
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.bands import block_count, pad_length
from keras_transformer.attention.partition.selected_blocks import BlockSelection, block_importance, take_slots
from keras_transformer.attention.softmax.query_tiles import by_query_tiles
from keras_transformer.attention.token_mixer import TokenMixer, zero_masked
from keras_transformer.layers.projection import join_heads, split_heads
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, Initializer, LayerOptions, Shape, Tensor

_BRANCHES = ("compressed", "selected", "window")
# Queries whose selected keys are gathered at a time.
_TILE = 64


@serializable
class NativeSparseAttention(TokenMixer):
    """Native sparse attention (NSA): `o_t = Σ_c g_t^c · softmax(q_t K_cᵀ) V_c` over three sets of keys and values.

    - compressed: a learned function makes one key and one value of each block of `compression_length` tokens. A block starts
      every `compression_stride` tokens, and is visible from its last token on.
    - selected: the tokens of `num_blocks` blocks of `block_size`. The weights of the compressed blocks, summed over the
      query heads that share a key head, rank them. The first block and the last `num_local_blocks` are always selected.
    - window: the last `window` tokens.

    Each set has keys and values of its own; queries are shared. The gates are `g = sigmoid(x W_g)`, one for each token, head
    and set. The selected blocks are gathered. Time grows with `T · (T / compression_stride + num_blocks · block_size +
    window)`, memory with T: attention is computed for 64 queries at a time, and recomputed for gradients.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width of each query and key head.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        num_key_value_heads: int that divides `num_heads`, or None for `num_heads`. K.
        compression_length: int >= 1, a multiple of `compression_stride`. l. Defaults to 32.
        compression_stride: int >= 1. d. Defaults to 16.
        block_size: int >= 1, a multiple of `compression_stride`. l'. Defaults to 64.
        num_blocks: int > `num_local_blocks`. n, with those that are always selected. Defaults to 16.
        num_local_blocks: int >= 1. Defaults to 2.
        window: int >= 1. w. Defaults to 512.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None. It must not have biases. A compressed key
            has the position of the last token of its block.
        kernel_initializer: initializer of the projections.

    Call arguments: see `TokenMixer`. Always causal; no `attention_mask`. A masked token counts as zeros in its compressed
        blocks.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache has keys and values of all tokens for each set, and
        those to compress, `(B, K, L, ·)` each; a compressed key is at the slot of the last token of its block. It is 4 times
        as large as that of grouped-query attention, but a step reads only the attended keys.

    Raises:
        ValueError: sizes below 1, or that are not multiples of the stride; a position with biases; an unsupported argument;
            a full cache.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = NativeSparseAttention(num_heads=4, key_dim=8, num_key_value_heads=2)
    >>> x = np.ones((1, 5, 16), "float32")
    >>> output, cache = layer(x, x, cache=layer.init_cache(batch_size=1, max_length=9), cache_index=0)
    >>> tuple(output.shape), tuple(cache["compressed_key"].shape)
    ((1, 5, 16), (1, 2, 9, 8))

    Reference: Yuan et al., arXiv 2502.11089, section 3, equations 5 to 12; the defaults are those of section 4.1. The paper
    leaves open: the gates have one layer; the place of rotation is as above; the compression is `BlockCompression`.
    """

    supports = frozenset({"causal", "cache"})
    cache_is_rewindable = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        num_key_value_heads: int | None = None,
        compression_length: int = 32,
        compression_stride: int = 16,
        block_size: int = 64,
        num_blocks: int = 16,
        num_local_blocks: int = 2,
        window: int = 512,
        position: str | Config | AttentionPosition | None = "rotary",
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        self.num_key_value_heads = key_value_heads(num_key_value_heads, num_heads)
        self.compression_length = positive("compression_length", compression_length)
        self.compression_stride = positive("compression_stride", compression_stride)
        self.block_size = positive("block_size", block_size)
        self.num_blocks = positive("num_blocks", num_blocks)
        self.num_local_blocks = positive("num_local_blocks", num_local_blocks)
        self.window = positive("window", window)
        self._check_sizes()
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.use_bias = False
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        if self.position is not None and self.position.needs:
            raise ValueError(f"position must only rotate queries and keys. Received: {type(self.position).__name__}")
        self.softmax = SoftmaxAttention(dtype=self.dtype_policy, name="softmax")
        self.local = LocalAttention(window, dtype=self.dtype_policy, name="local")
        self._selection = BlockSelection(block_size, num_blocks, num_local_blocks)

    def _check_sizes(self) -> None:
        for name in ("compression_length", "block_size"):
            if getattr(self, name) % self.compression_stride:
                raise ValueError(
                    f"{name} must be a multiple of compression_stride={self.compression_stride}. "
                    f"Received: {getattr(self, name)}"
                )
        if self.num_blocks <= self.num_local_blocks:
            raise ValueError(
                f"num_blocks counts the first block and the local ones: it must be above num_local_blocks="
                f"{self.num_local_blocks}. Received: {self.num_blocks}"
            )

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        tokens, heads = tuple(query_shape[:2]), self.num_key_value_heads
        self.query_dense = self._built(split_heads(self, "query", self.num_heads, self.key_dim), query_shape)
        self.gate_dense = self._built(split_heads(self, "gate", self.num_heads, len(_BRANCHES)), query_shape)
        for branch in _BRANCHES:
            for kind, width in (("key", self.key_dim), ("value", self.value_dim)):
                name = f"{branch}_{kind}"
                setattr(self, f"{name}_dense", self._built(split_heads(self, name, heads, width), query_shape))
        for kind, width in (("key", self.key_dim), ("value", self.value_dim)):
            options = {"dtype": self.dtype_policy, "name": f"{kind}_compression"}
            layer = BlockCompression(self.compression_length, self.kernel_initializer.clone(), **options)
            setattr(self, f"{kind}_compression", self._built(layer, (None, None, self.compression_length * width)))
        self.output_dense = join_heads(self, "attention_output", query_shape[-1])
        self.output_dense.build((*tokens, self.num_heads, self.value_dim))
        shapes = [(*tokens, n, width) for n, width in ((self.num_heads, self.key_dim), (heads, self.key_dim))]
        if self.position is not None:
            build_once(self.position, *shapes)
        for mechanism in (self.softmax, self.local):
            build_once(mechanism, *shapes, (*tokens, heads, self.value_dim))

    def _built(self, layer: keras.layers.Layer, shape: Shape) -> keras.layers.Layer:
        layer.build(shape)
        return layer

    def mix(self, inputs: MixerInputs) -> Tensor:
        query, new = self._project(inputs)
        visibility = inputs.visibility
        tokens = {name: _heads_first(x) for name, x in new.items()}
        compressed = self._compress(tokens, visibility, 0, ops.shape(query)[1], visibility.key_mask)
        window = self.local.attend(query, new["window_key"], new["window_value"], visibility)
        return self._attend(inputs, query, compressed, tokens, window, visibility.key_mask)

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        check_key_mask(inputs.cache, inputs.key_mask)
        query, new = self._project(inputs)
        index, visibility = inputs.cache_index, inputs.visibility
        sources = {f"source_{kind}": new.pop(f"compressed_{kind}") for kind in ("key", "value")}
        cache = write_rows(inputs.cache, sources | new, index)
        tokens = {name: ops.cast(x, query.dtype) for name, x in cache.items()}
        start, length = visibility.query_slots[:, :1], ops.shape(query)[1]
        first = ops.maximum(start - self.compression_length + self.compression_stride, 0) // self.compression_stride
        sources = {f"compressed_{kind}": tokens[f"source_{kind}"] for kind in ("key", "value")}
        blocks = self._compress(sources, visibility, first, length, inputs.key_mask)
        rows = {name: self._at_slots(x, first, visibility.query_slots) for name, x in blocks.items()}
        cache |= write_rows(inputs.cache, rows, index)
        count = block_count(ops.shape(tokens["selected_key"])[2], self.compression_stride)
        ends = ops.minimum(self._ends(ops.arange(count, dtype="int32")), ops.shape(tokens["selected_key"])[2] - 1)
        compressed = {name: _heads_first(ops.take(ops.cast(cache[name], query.dtype), ends, axis=2)) for name in blocks}
        window = self._attend_to_window(query, tokens, inputs)
        return self._attend(inputs, query, compressed, tokens, window, inputs.key_mask), cache

    def _project(self, inputs: MixerInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns queries `(B, T, N, H)`, and keys and values `(B, T, K, ·)` of each set; compressed ones as projected."""
        x = inputs.query
        query = self.query_dense(x)
        new = {f"{b}_{kind}": getattr(self, f"{b}_{kind}_dense")(x) for b in _BRANCHES for kind in ("key", "value")}
        if self.position is not None:
            positions = inputs.visibility.query_positions
            rotated, new["selected_key"] = self.position.rotate(query, new["selected_key"], positions, positions)
            _, new["window_key"] = self.position.rotate(query, new["window_key"], positions, positions)
            query = rotated
        return query, new

    def _ends(self, blocks: Tensor) -> Tensor:
        """The slots of the last tokens of compressed blocks."""
        return blocks * self.compression_stride + (self.compression_length - 1)

    def _compress(
        self,
        tokens: dict[str, Tensor],
        visibility: Visibility,
        first: int | Tensor,
        length: int | Tensor,
        key_mask: Tensor | None,
    ) -> dict[str, Tensor]:
        """Returns the keys and values `(B, C, K, ·)` of the compressed blocks that may end within the new tokens.

        Args:
            tokens: "compressed_key" and "compressed_value" `(B, K, L, ·)` of all tokens.
            visibility: of the new tokens.
            first: int, or int32 `(1 | B, 1)`: the first block.
            length: the number of new tokens.
            key_mask: boolean `(B, L)`, or None.
        """
        size, batch = self.compression_length, ops.shape(tokens["compressed_key"])[0]
        count, last = block_count(length, self.compression_stride), ops.shape(tokens["compressed_key"])[2] - 1
        blocks = first + ops.expand_dims(ops.arange(count, dtype="int32"), 0)  # (1 | B, C)
        slots = ops.expand_dims(blocks * self.compression_stride, 2) + ops.arange(size, dtype="int32")
        slots = ops.minimum(ops.reshape(slots, (ops.shape(slots)[0], 1, count * size)), last)
        mask = None
        if key_mask is not None:
            real = ops.cast(key_mask, "float32")[:, None, :, None]
            mask = ops.reshape(take_slots(real, ops.broadcast_to(slots, (batch, 1, count * size))), (-1, count, size))
            mask = ops.repeat(mask, self.num_key_value_heads, axis=0)
        slots = ops.broadcast_to(slots, (batch, self.num_key_value_heads, count * size))
        compressed = {}
        for kind in ("key", "value"):
            x = tokens[f"compressed_{kind}"]
            gathered = ops.reshape(take_slots(x, slots), (-1, count, size * x.shape[3]))
            compact = getattr(self, f"{kind}_compression")(gathered, mask)
            compact = ops.reshape(compact, (-1, self.num_key_value_heads, count, x.shape[3]))
            compressed[f"compressed_{kind}"] = _heads_first(compact)
        if self.position is not None:
            at = ops.maximum(ops.minimum(self._ends(blocks) - visibility.query_slots[:, :1], length - 1), 0)
            positions = _taken(with_batch_axis(visibility.query_positions), at, batch)
            key = compressed["compressed_key"]
            compressed["compressed_key"] = self.position.rotate(key, key, positions, positions)[1]
        return compressed

    def _at_slots(self, blocks: Tensor, first: Tensor, slots: Tensor) -> Tensor:
        """Returns for each new token `(B, T, K, W)` the last of the blocks `(B, C, K, W)` that ends at or before it."""
        count, (heads, width) = ops.shape(blocks)[1], blocks.shape[2:]
        at = ops.maximum(slots - (self.compression_length - 1), 0) // self.compression_stride - first
        at = ops.maximum(ops.minimum(at, count - 1), 0)
        at = ops.broadcast_to(ops.expand_dims(at, 1), (ops.shape(blocks)[0], 1, ops.shape(slots)[1]))
        rows = ops.reshape(blocks, (-1, 1, count, heads * width))
        return ops.reshape(take_slots(rows, at), (-1, ops.shape(slots)[1], heads, width))

    def _attend(
        self,
        inputs: MixerInputs,
        query: Tensor,
        compressed: dict[str, Tensor],
        tokens: dict[str, Tensor],
        window: Tensor,
        key_mask: Tensor | None,
    ) -> Tensor:
        """Returns the output for the context of the window, compressed blocks `(B, C, K, ·)`, and all tokens."""
        slots = ops.broadcast_to(inputs.visibility.query_slots, ops.shape(query)[:2])
        shared = [compressed[f"compressed_{kind}"] for kind in ("key", "value")]
        shared += [tokens[f"selected_{kind}"] for kind in ("key", "value")]
        both = by_query_tiles(self._far(key_mask), query, slots, shared, _TILE)
        gates = ops.sigmoid(self.gate_dense(inputs.query))
        contexts = (both[..., : self.value_dim], both[..., self.value_dim :], window)
        terms = [gates[..., at : at + 1] * context for at, context in enumerate(contexts)]
        context = terms[0] + terms[1] + terms[2]
        return self.output_dense(zero_masked(context, inputs.query_mask))

    def _far(self, key_mask: Tensor | None) -> Callable[..., Tensor]:
        """Returns the function of a tile of queries to the contexts of compressed and of selected blocks, side by side."""
        selection, stride = self._selection, self.compression_stride
        pieces = (self.compression_length // stride, self.block_size // stride)

        def attend(query, slots, block_key, block_value, key, value):
            count, heads = ops.shape(block_key)[1], self.num_key_value_heads
            blocks = ops.arange(count, dtype="int32")
            visible = Visibility(
                key_mask=self._real_blocks(key_mask, blocks, ops.shape(key)[2]),
                causal=True,
                query_slots=slots,
                key_slots=self._ends(blocks),
            )
            context, weights = self.softmax(
                query, block_key, block_value, visibility=visible, return_attention_scores=True
            )
            length, number = ops.shape(query)[1], selection.count(ops.shape(key)[2])
            weights = ops.reshape(ops.stop_gradient(weights), (-1, self.num_heads // heads, length, count))
            importance = block_importance(ops.sum(weights, axis=1), *pieces, number)
            importance = ops.reshape(importance, (-1, heads, length, number))
            chosen = selection.attend(self.softmax, query, slots, key, value, importance, key_mask)
            return ops.concatenate([context, chosen], axis=3)

        return attend

    def _real_blocks(self, key_mask: Tensor | None, blocks: Tensor, length: int | Tensor) -> Tensor:
        """Returns which compressed blocks have real tokens, boolean `(1 | B, C)`."""
        if key_mask is None:
            return ops.expand_dims(blocks >= 0, 0)
        size, count = self.compression_length, ops.shape(blocks)[0]
        slots = ops.expand_dims(blocks * self.compression_stride, 1) + ops.arange(size, dtype="int32")
        slots = ops.minimum(ops.reshape(slots, (-1,)), length - 1)
        real = ops.take(ops.cast(key_mask, "int32"), slots, axis=1)
        return ops.max(ops.reshape(real, (-1, count, size)), axis=2) > 0

    def _attend_to_window(self, query: Tensor, tokens: dict[str, Tensor], inputs: MixerInputs) -> Tensor:
        """Returns the context of new queries and the tokens of the window before each, from the cache."""
        before, length, batch = self.window - 1, ops.shape(query)[1], ops.shape(query)[0]
        start, last = inputs.visibility.query_slots[:, :1], ops.shape(tokens["window_key"])[2] - 1
        slots = start - before + ops.expand_dims(ops.arange(before + length, dtype="int32"), 0)
        slots = ops.broadcast_to(slots, (batch, before + length))
        at = ops.expand_dims(ops.minimum(ops.maximum(slots, 0), last), 1)
        flat = ops.broadcast_to(at, (batch, self.num_key_value_heads, before + length))
        key, value = (self._gathered(tokens[f"window_{kind}"], flat) for kind in ("key", "value"))
        mask = slots >= 0
        if inputs.key_mask is not None:
            real = take_slots(ops.cast(inputs.key_mask, "int32")[:, None, :, None], at)
            mask = ops.logical_and(mask, ops.reshape(real, (-1, before + length)) > 0)
        visible = Visibility(
            key_mask=mask, causal=True, query_slots=slots[:, before:], key_slots=slots, key_positions=slots
        )
        if query.shape[1] is not None and query.shape[1] <= self.window:
            visible = dataclasses.replace(visible, window=self.window)
            return self.softmax(query, key, value, visibility=visible)
        # Queries are aligned with their keys; the outputs of past queries are dropped.
        visible = dataclasses.replace(visible, query_slots=slots, query_positions=slots)
        return self.local.attend(pad_length(query, before, 0), key, value, visible)[:, before:]

    def _gathered(self, x: Tensor, slots: Tensor) -> Tensor:
        """Tokens `(B, M, K, W)` at the slots `(B, K, M)` of `(B, K, L, W)`."""
        rows = ops.reshape(take_slots(x, slots), (-1, self.num_key_value_heads, ops.shape(slots)[2], x.shape[3]))
        return _heads_first(rows)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns an empty cache for `max_length` tokens."""
        if dtype == "int8":
            raise ValueError(f"{self.path or self.name}: the cache of native sparse attention has no int8 form.")
        sizes = (batch_size, max_length, self.num_key_value_heads, self.key_dim, self.value_dim)
        slabs = init_dense_cache(*sizes, dtype or self.compute_dtype)
        return {f"{name}_{kind}": slab for name in (*_BRANCHES, "source") for kind, slab in slabs.items()}

    def get_config(self) -> Config:
        names = ["num_heads", "key_dim", "value_dim", "num_key_value_heads", "compression_length", "compression_stride"]
        names += ["block_size", "num_blocks", "num_local_blocks", "window"]
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
            "position": serialize(self.position),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _heads_first(x: Tensor) -> Tensor:
    """Swaps the axes of tokens and heads of `(B, T, K, W)`, in either direction."""
    return ops.transpose(x, (0, 2, 1, 3))


def _taken(positions: Tensor, at: Tensor, batch: int | Tensor) -> Tensor:
    """Positions `(1 | B, T)` at the indices `(1 | B, C)` of each row, `(B, C)`."""
    length, count = ops.shape(positions)[1], ops.shape(at)[1]
    column = ops.reshape(ops.broadcast_to(positions, (batch, length)), (batch, 1, length, 1))
    rows = take_slots(column, ops.broadcast_to(ops.expand_dims(at, 1), (batch, 1, count)))
    return ops.reshape(rows, (batch, count))
