"""The relative position embedding of DeBERTa."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.layers.norms import NORMS
from keras_transformer.positions.relative.distances import distances
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, Initializer, LayerLike, LayerOptions, Shape, Tensor

# The longest distance that a table of buckets has an entry for.
_LONGEST = 2**17


@serializable
class RelativeEmbedding(keras.layers.Layer):
    """Relative position embedding of DeBERTa: a vector for each distance of two tokens, or for each bucket of distances.

    Query i and key j have the row `clip(bucket(i - j), -k, k - 1) + k` of a table of 2k vectors of the width of the tokens.
    Without buckets, `bucket(d) = d` and k is `max_distance`. With buckets, k is `num_buckets`, distances up to k / 2 have a
    bucket each, and those beyond it share buckets whose size grows exponentially up to `max_distance`. Any longer distance
    has the outermost row, so that a sequence may have any length.

    `attention.DisentangledAttention` projects the vectors. Layers with the same instance share them, as the blocks of
    `models.DeBERTa` do. It is called by its methods, inside the call of the layer that contains it.

    Args:
        max_distance: int >= 1. Defaults to 512.
        num_buckets: even int >= 4, or None for a row for each distance.
        norm: a name in `blocks.NORMS`, a norm layer to copy, or None. Applied to the vectors.
        initializer: initializer of the table, `(2k, D)`. Defaults to normal with standard deviation 0.02.

    Raises:
        ValueError: `max_distance` below 1; with buckets, `num_buckets` odd or below 4, or `max_distance` not in
            [`num_buckets / 2 + 2`, 131072].

    Example:

    >>> import numpy as np
    >>> embedding = RelativeEmbedding(max_distance=2)
    >>> np.array(embedding.rows(np.arange(4), np.arange(4))).tolist()
    [[[2, 1, 0, 0], [3, 2, 1, 0], [3, 3, 2, 1], [3, 3, 3, 2]]]

    Reference: He et al., DeBERTa, arXiv 2006.03654, section 3.1, equation 3; buckets and norm as in the published code of
    version 2. The edges of its buckets depend on the rounding of a float32 logarithm: here that is rounded correctly, so
    that with rare numbers of buckets (4 of 1,500 tried, none of them published) one distance has the next bucket.
    """

    def __init__(
        self,
        max_distance: int = 512,
        num_buckets: int | None = None,
        norm: LayerLike | None = None,
        initializer: Initializer = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if max_distance < 1:
            raise ValueError(f"max_distance must be at least 1. Received: {max_distance}")
        self.max_distance = max_distance
        self.num_buckets = num_buckets
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self._norm = clone(self.norm, name="norm", dtype=self.dtype_policy)
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self._buckets = None if num_buckets is None else log_buckets(num_buckets, max_distance)
        # Distances of at least this have the outermost row.
        self._reach = max_distance if self._buckets is None else len(self._buckets) // 2

    @property
    def span(self) -> int:
        """int: k, half the rows of the table."""
        return self.num_buckets or self.max_distance

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for tokens `(B, T, D)`."""
        shape = (2 * self.span, input_shape[-1])
        self.embeddings = self.add_weight(name="embeddings", shape=shape, initializer=self.initializer)
        if self._norm is not None:
            build_once(self._norm, (1, *shape))

    def vectors(self, length: int | Tensor | None = None) -> tuple[Tensor, int | Tensor]:
        """Returns the vectors that a sequence reaches, and the row of the first one.

        Args:
            length: int, or an int scalar: the positions are below it. None for all vectors.

        Returns:
            `(vectors, first)`: float `(1, R, D)`, and an int or an int32 scalar.
        """
        table, first = ops.convert_to_tensor(self.embeddings), 0
        if length is not None:
            first, last = self._reached(length)
            table = table[first : last + 1]
        vectors = ops.expand_dims(table, 0)
        return vectors if self._norm is None else self._norm(vectors), first

    def _reached(self, length):
        """Returns the first and the last row of distances below `length`."""
        minimum = min if isinstance(length, int) else ops.minimum
        bucket = minimum(length - 1, self._reach)
        if self._buckets is not None:
            of_later_keys = self._buckets[self._reach :: -1]
            found = of_later_keys[bucket] if isinstance(length, int) else ops.take(of_later_keys, bucket)
            bucket = self.span - found
        return self.span - bucket, self.span + minimum(bucket, self.span - 1)

    def rows(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns the row of each pair, int32 `(1 | B, T, S)`, for positions `(T,)` or `(B, T)` and `(S,)` or `(B, S)`."""
        distance = -distances(query_positions, key_positions)
        if self._buckets is None:
            return ops.clip(distance + self.span, 0, 2 * self.span - 1)
        return ops.take(self._buckets, ops.clip(distance, -self._reach, self._reach) + self._reach, axis=0)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "num_buckets": self.num_buckets,
            "norm": serialize(self.norm),
            "initializer": keras.initializers.serialize(self.initializer),
        }


def log_buckets(num_buckets: int, max_distance: int) -> np.ndarray:
    """Returns the row of each distance `-n .. n`, query minus key, in a table of `2 num_buckets` rows, as an int32 array.

    n is the first distance whose row is the outermost one on both sides. A table rather than a logarithm in the graph, which
    runtimes round differently at the edges of buckets. Computed in float32, as published.

    Args:
        num_buckets: even int >= 4.
        max_distance: int in [`num_buckets / 2 + 2`, 131072].

    Raises:
        ValueError: an argument out of range.

    Example:

    >>> log_buckets(4, 8).tolist()
    [0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7]
    """
    if num_buckets < 4 or num_buckets % 2:
        raise ValueError(f"num_buckets must be even and at least 4. Received: {num_buckets}")
    single = num_buckets // 2
    if not single + 2 <= max_distance <= _LONGEST:
        raise ValueError(
            f"max_distance must be in [{single + 2}, {_LONGEST}] with {num_buckets} buckets. Received: {max_distance}"
        )
    distance = np.arange(2 * max_distance + 1)
    # Each operation rounded to float32, as published: the edges of buckets depend on it.
    ratio = np.maximum(distance, single).astype("float32") / np.float32(single)
    logarithms = np.log(ratio.astype("float64")).astype("float32")
    growth = logarithms / np.float32(np.log(np.float64(np.float32((max_distance - 1) / single))))
    far = np.ceil(growth * np.float32(single - 1)) + single
    bucket = np.where(distance <= single, distance, far).astype("int32")
    bucket = bucket[: np.argmax(bucket >= num_buckets) + 1]
    rows = np.concatenate([-bucket[:0:-1], bucket]) + num_buckets
    return np.clip(rows, 0, 2 * num_buckets - 1).astype("int32")
