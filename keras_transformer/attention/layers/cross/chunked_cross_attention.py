"""Chunked cross-attention of RETRO: attention of a text to the retrieved neighbors of its chunks."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.attention.multi_head.multi_head_attention import MultiHeadAttention
from keras_transformer.attention.partition.bands import pad_length, take_rows
from keras_transformer.attention.partition.chunk_progress import ChunkProgress
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, Outputs, Shape, Tensor

_CACHE_NAMES = ("neighbor_keys", "neighbor_values", "neighbor_mask")


@serializable
class ChunkedCrossAttention(CachedLayer):
    """Chunked cross-attention to retrieved neighbors: `CCA(h)_{u, i} = attention(h_{u m + m - 1 + i}, E_u)`.

    E_u are the encoded neighbors of chunk u, which has m tokens. To be causal, the last token of chunk u and the m - 1
    tokens after it attend to E_u, with all neighbors concatenated. The first m - 1 tokens of a text attend to nothing. The
    output is zeros for tokens without neighbors. Time and memory grow with `T · k · r`, for k neighbors of r tokens per
    chunk.

    Args:
        attention: `MultiHeadAttention` that supports cross-attention, or its config.
        chunk_size: int >= 1. m. Defaults to 64.

    Call arguments:
        inputs: float `(B, T, D)`.
        neighbors: float `(B, L, k · r, E)`: the neighbors of the first L chunks. With a cache, of the `L = ceil(T / m)`
            chunks that the new tokens may complete, starting with the chunk of the first new token.
        neighbor_mask: boolean `(B, L, k, r)`: True = a token that may be attended to.
        padding_mask: boolean `(B, T)`: with a cache, False for padding among the new tokens, which must be on the right;
            None for no padding. Without a cache it is not read: padding on the right does not affect earlier tokens.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the number of tokens that each row has read before.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: an attention that does not support cross-attention; `chunk_size` below 1.

    Positions, if the attention has a position: token i of those that attend to E_u has position m - 1 + i, and token j of
    each neighbor has position j, so that a neighbor is aligned with the start of its chunk.
    The cache has a fixed size: projected keys and values of the neighbors of the last full chunk.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> layer = ChunkedCrossAttention(MultiHeadAttention(2, 4), chunk_size=3)
    >>> neighbors, mask = np.ones((1, 2, 8, 5)), np.ones((1, 2, 2, 4), bool)  # 2 chunks with 2 neighbors of 4 tokens.
    >>> output = layer(np.ones((1, 6, 8)), neighbors, mask)
    >>> tuple(output.shape), (np.array(output) != 0).any(-1).astype(int).tolist()
    ((1, 6, 8), [[0, 0, 1, 1, 1, 1]])

    Reference: Borgeaud et al., RETRO, arXiv 2112.04426, section 2.4, figure 2 and algorithm 1.
    """

    cache_is_rewindable = False

    def __init__(self, attention: keras.layers.Layer | Config, chunk_size: int = 64, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.attention = resolve(attention, {}, MultiHeadAttention, argument="attention")
        check_cross_attention(self.attention)
        self.chunk_size = positive("chunk_size", chunk_size)

    def build(self, inputs_shape: Shape, neighbors_shape: Shape, neighbor_mask_shape: Shape) -> None:
        build_once(self.attention, inputs_shape, (None, *neighbors_shape[2:]))
        self._neighbor_length = neighbors_shape[2]

    def call(
        self,
        inputs: Tensor,
        neighbors: Tensor,
        neighbor_mask: Tensor,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        if cache is not None:
            return self._extend(inputs, neighbors, neighbor_mask, padding_mask, cache, cache_index)
        size, length = self.chunk_size, ops.shape(inputs)[1]
        reach = ops.shape(neighbors)[1] * size
        queries = pad_length(inputs[:, size - 1 :], 0, reach)[:, :reach]
        output = self.attention(
            ops.reshape(queries, (-1, size, inputs.shape[-1])),
            ops.reshape(neighbors, (-1, *neighbors.shape[2:])),
            value_mask=_flat(neighbor_mask),
            positions=(self._query_positions(), _key_positions(neighbor_mask)),
            training=training,
        )
        output = _where_any(output, _flat(neighbor_mask))
        output = ops.reshape(output, (-1, reach, output.shape[-1]))
        return pad_length(output, size - 1, length)[:, :length]

    def _query_positions(self):
        """Returns the positions `(m,)` of the tokens that attend to the neighbors of one chunk, counted from its start."""
        return np.arange(self.chunk_size - 1, 2 * self.chunk_size - 1, dtype="int32")

    # New tokens, with a cache. In the shapes, C is the number of chunks that they may complete, X the size of a flat row.

    def _extend(self, x, neighbors, mask, padding_mask, cache, cache_index):
        progress = ChunkProgress(self.chunk_size, x, padding_mask, cache_index)
        # One row for each chunk that a token may attend to: the last full chunk, and the chunks that the new tokens
        # complete.
        new = self._project(neighbors, mask, progress)
        tensors = {
            name: ops.concatenate([ops.expand_dims(_rows(cache[name]), 1), ops.cast(new[name], cache[name].dtype)], 1)
            for name in _CACHE_NAMES
        }
        if x.shape[1] == 1:
            chosen = self._chosen(tensors, progress.last, cache)
            position = ops.reshape(ops.mod(progress.index + 1, self.chunk_size), (-1, 1)) + (self.chunk_size - 1)
            output = self._read(x, chosen, (position, _key_positions(mask)))
        else:
            output = self._read_chunks(x, tensors, mask, cache, progress)
        return output, self._chosen(tensors, progress.last, cache)

    def _read_chunks(self, x, tensors, mask, cache, progress):
        """Returns the output of several tokens at any offset in their chunk."""
        size, rows = self.chunk_size, progress.count + 1
        offset = ops.mod(progress.index, size) + 1  # Offset of the first token in the previous chunk's queries.
        queries = take_rows(pad_length(x, size, rows * size), progress.broadcast(size - offset), rows * size)
        chunks = {name: ops.reshape(tensor, (-1, *cache[name].shape[1:])) for name, tensor in tensors.items()}
        queries = ops.reshape(queries, (-1, size, x.shape[-1]))
        output = self._read(queries, chunks, (self._query_positions(), _key_positions(mask)))
        output = ops.reshape(output, (-1, rows * size, output.shape[-1]))
        return take_rows(output, progress.broadcast(offset), ops.shape(x)[1])

    def _read(self, queries, chunks, positions):
        memory = {"key": chunks["neighbor_keys"], "value": chunks["neighbor_values"]}
        mask = chunks["neighbor_mask"]
        output, _ = self.attention(queries, None, value_mask=mask, positions=positions, cache=memory)
        return _where_any(output, mask)

    def _project(self, neighbors, mask, progress):
        """Returns keys, values and mask of the chunks that these tokens complete, `(B, C, X)` each; zeros if none."""
        count, (key_width, value_width) = ops.shape(neighbors)[1], self._widths()

        # One tensor, not two: ONNX Runtime drops one of two outputs of a branch if both are the same zeros.
        def project():
            flat = ops.reshape(ops.cast(neighbors, self.compute_dtype), (-1, *neighbors.shape[2:]))
            memory = self.attention.memory_cache(flat, positions=_key_positions(mask))
            rows = [_rows(memory[name]) for name in ("key", "value")]
            return ops.reshape(ops.concatenate(rows, axis=1), (-1, count, key_width + value_width))

        def nothing():
            return ops.zeros((ops.shape(neighbors)[0], count, key_width + value_width), dtype=self.compute_dtype)

        projected = ops.cond(progress.fills_any, project, nothing)
        projected = ops.reshape(projected, (-1, count, key_width + value_width))
        flat_mask = ops.reshape(mask, (-1, count, self._neighbor_length))
        keys, values = projected[:, :, :key_width], projected[:, :, key_width:]
        return dict(zip(_CACHE_NAMES, (keys, values, flat_mask), strict=True))

    def _chosen(self, tensors, rows, cache):
        """Selects one chunk per row of the batch. `rows`, `(1 | B,)`, count from the last full chunk."""
        batch = ops.shape(cache["neighbor_mask"])[0]
        chosen = {}
        for name, tensor in tensors.items():
            indices = ops.reshape(ops.arange(batch, dtype="int32") * ops.shape(tensor)[1] + rows, (-1,))
            taken = ops.take(ops.reshape(tensor, (-1, tensor.shape[2])), indices, axis=0)
            chosen[name] = ops.reshape(taken, (-1, *cache[name].shape[1:]))
        return chosen

    def _widths(self):
        """Returns the number of key and of value entries of one chunk."""
        attention = self.attention
        rows = attention.num_key_value_heads * self._neighbor_length
        return rows * attention.key_dim, rows * attention.value_dim

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty cache. Its size does not depend on `max_length`."""
        if not self.built:
            raise ValueError(f"The cache of {self.name} has the size of the neighbors: build the layer first.")
        attention, dtype = self.attention, dtype or self.compute_dtype
        shape = (batch_size, attention.num_key_value_heads, self._neighbor_length)
        return {
            "neighbor_keys": ops.zeros((*shape, attention.key_dim), dtype=dtype),
            "neighbor_values": ops.zeros((*shape, attention.value_dim), dtype=dtype),
            "neighbor_mask": ops.zeros((batch_size, self._neighbor_length), dtype="bool"),
        }

    def compute_output_spec(
        self, inputs: Tensor, *args: object, cache: Cache | None = None, **options: object
    ) -> Outputs:
        return self._output_spec(inputs.shape, cache)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **options: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "attention": serialize(self.attention), "chunk_size": self.chunk_size}


def _rows(tensor):
    """Reshapes `(B, ...)` to `(B, X)`."""
    return ops.reshape(tensor, (-1, int(np.prod(tensor.shape[1:]))))


def _flat(mask):
    """Reshapes `(B, L, k, r)` to `(B · L, k · r)`."""
    return ops.reshape(ops.cast(mask, "bool"), (-1, mask.shape[2] * mask.shape[3]))


def _key_positions(mask):
    """Returns the position of each token in its neighbor, `(k · r,)`."""
    return np.tile(np.arange(mask.shape[3], dtype="int32"), mask.shape[2])


def _where_any(output, mask):
    """Returns the output `(B, T, D)`, with zeros in rows without neighbors, where projections would leave their bias."""
    found = ops.any(mask, axis=1, keepdims=True)
    return output * ops.cast(ops.expand_dims(found, 2), output.dtype)
