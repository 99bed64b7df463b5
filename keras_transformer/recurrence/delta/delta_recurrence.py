"""What the layers with a delta rule share: queries, keys and values by a short convolution, and the norm of each head."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.recurrence.heads import float_heads, unit_length
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.short_convolution import ShortConvolution
from keras_transformer.utils.types import Cache, Tensor


class DeltaRecurrence(Recurrence):
    """Base of `GatedDeltaNet` and `KimiDeltaAttention`, which build the sublayers and weights that are named here."""

    num_heads: int
    num_key_heads: int
    key_dim: int
    value_dim: int
    kernel_size: int
    epsilon: float
    activation: Callable[[Tensor], Tensor]
    convolution: ShortConvolution
    query_dense: keras.layers.Layer
    key_dense: keras.layers.Layer
    value_dense: keras.layers.Layer
    norm_scale: Tensor

    def _query_key_value(self, x: Tensor, mask: Tensor | None, cache: Cache) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns query and key of length 1 and value, float32 `(B, T, heads, width)`, and "recent" of the next cache."""
        mixed = ops.concatenate([self.query_dense(x), self.key_dense(x), self.value_dense(x)], axis=2)
        mixed, recent = self.convolution(mixed, mask=mask, before=cache.get("recent"))
        mixed, keys = self.activation(mixed), self.num_key_heads * self.key_dim
        parts = (mixed[:, :, :keys], mixed[:, :, keys : 2 * keys], mixed[:, :, 2 * keys :])
        query, key = (unit_length(float_heads(part, self.num_key_heads)) for part in parts[:2])
        return query, key, float_heads(parts[2], self.num_heads), recent

    def _normalized(self, y: Tensor) -> Tensor:
        """Returns the norm of each head of `(B, T, N, value_dim)`, heads joined."""
        length = ops.shape(y)[1]
        y = ops.rms_normalization(y, scale=ops.cast(self.norm_scale, "float32"), axis=-1, epsilon=self.epsilon)
        return ops.reshape(y, (-1, length, self.num_heads * self.value_dim))

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state. Its size does not depend on `max_length`. It is float32, as a sum of many terms."""
        channels = 2 * self.num_key_heads * self.key_dim + self.num_heads * self.value_dim
        shapes = {
            "state": (self.num_heads, self.key_dim, self.value_dim),
            "recent": (self.kernel_size - 1, channels),
        }
        return {name: ops.zeros((batch_size, *shape), dtype="float32") for name, shape in shapes.items()}
