"""Attention scoring functions, as layers.

`scoring(query, key)` maps `(B, T, N, H)` and `(B, S, K, H)`, N a multiple of K, to scores `(B, N, T, S)`.
The query heads that use key head j are `j * N/K .. (j + 1) * N/K - 1`.
"""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.backend.shared_matmul import shared_matmul
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, Shape, Tensor


def grouped_scores(query: Tensor, key: Tensor) -> Tensor:
    """`q · k` for every query and key of each head, without a copy of the keys for each head of a group."""
    key = ops.transpose(key, (0, 2, 3, 1))
    heads, key_heads = query.shape[2], key.shape[1]
    query = ops.transpose(query, (0, 2, 1, 3))
    if heads == key_heads:
        return ops.matmul(query, key)
    length, key_length = ops.shape(query)[2], ops.shape(key)[3]
    # Heads that share a key are adjacent: fold them into the length.
    query = ops.reshape(query, (-1, key_heads, heads // key_heads * length, query.shape[3]))
    return ops.reshape(ops.matmul(query, key), (-1, heads, length, key_length))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """Soft capping, `c · tanh(x / c)`: about x where x is small, and always within (-c, c)."""
    return ops.tanh(x / cap) * cap


class _Scoring(keras.layers.Layer):
    """Base class of scoring functions; without weights by default."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        pass

    def get_config(self) -> Config:  # Keras serializes a dtype policy only if this is overridden.
        return super().get_config()

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape) -> Shape:
        return (query_shape[0], query_shape[2], query_shape[1], key_shape[1])


@serializable
class Dot(_Scoring):
    """Dot-product scores, `q · k`.

    Call arguments:
        query: float `(B, T, N, H)`.
        key: float `(B, S, K, H)`.

    Returns:
        float `(B, N, T, S)`.

    Example:

    >>> import numpy as np
    >>> query, key = np.array([[1.0, 2.0]]).reshape(1, 1, 1, 2), np.array([[3.0, 0.0], [1.0, 1.0]]).reshape(1, 2, 1, 2)
    >>> Dot()(query, key).numpy().ravel().tolist()
    [3.0, 3.0]

    Reference: Luong et al., arXiv 1508.04025, section 3.1, "dot".
    """

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return grouped_scores(query, key)


@serializable
class ScaledDot(_Scoring):
    """Scaled dot-product scores, `q · k · scale`, by default `q · k / √H`.

    Args:
        scale: float, or None for `1 / √H`.

    Call arguments and returns: as for `Dot`.

    Example:

    >>> import numpy as np
    >>> ScaledDot()(np.ones((1, 1, 1, 4)), np.ones((1, 2, 1, 4))).numpy().ravel().tolist()
    [2.0, 2.0]

    Reference: Vaswani et al., arXiv 1706.03762, equation 1.
    """

    def __init__(self, scale: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        # The query is smaller than the scores.
        return grouped_scores(query * ops.cast(scale, query.dtype), key)

    def get_config(self) -> Config:
        return {**super().get_config(), "scale": self.scale}


@serializable
class SoftCappedDot(_Scoring):
    """Soft-capped scaled dot-product scores, `c · tanh(q · k · scale / c)`, which are within (-c, c).

    Args:
        cap: float > 0. c. Default 50.
        scale: float, or None for `1 / √H`.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: `cap` not above 0.

    Example:

    >>> import numpy as np
    >>> SoftCappedDot(cap=2.0)(np.full((1, 1, 1, 4), 100.0), np.ones((1, 1, 1, 4))).numpy().ravel().tolist()
    [2.0]

    Reference: Gemma Team, Gemma 2, arXiv 2408.00118, section 2 ("logit soft-capping").
    """

    def __init__(self, cap: float = 50.0, scale: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not cap > 0:
            raise ValueError(f"cap must be positive. Received: {cap}")
        self.cap = cap
        self.scaled_dot = ScaledDot(scale, dtype=self.dtype_policy)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return soft_cap(self.scaled_dot(query, key), self.cap)

    def get_config(self) -> Config:
        return {**super().get_config(), "cap": self.cap, "scale": self.scaled_dot.scale}


@serializable
class Cosine(_Scoring):
    """Cosine scores, `q · k / (|q| |k|) / τ`, with one learned temperature τ for each head.

    Args:
        temperature: float > 0. Initial τ. Default 0.1.
        epsilon: float. Lower bound of the norms.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: `temperature` not above 0.

    Example:

    >>> import numpy as np
    >>> Cosine(temperature=1.0)(np.full((1, 1, 1, 4), 3.0), np.ones((1, 1, 1, 4))).numpy().round(3).ravel().tolist()
    [1.0]

    Reference: Liu et al., Swin Transformer V2, arXiv 2111.09883, equation 2. Deviation: τ is `exp` of the weight, which
    keeps it positive; the paper also keeps it above 0.01.
    """

    def __init__(self, temperature: float = 0.1, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive. Received: {temperature}")
        self.temperature = temperature
        self.epsilon = epsilon

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.log_temperature = self.add_weight(
            name="log_temperature",
            shape=(query_shape[2], 1),
            initializer=keras.initializers.Constant(math.log(self.temperature)),
        )

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        query = self._unit(query) * ops.exp(-self.log_temperature)
        return grouped_scores(query, self._unit(key))

    def _unit(self, x: Tensor) -> Tensor:
        wide = ops.cast(x, "float32")  # Squares and inverse roots may be outside the range of float16.
        squared = ops.sum(ops.square(wide), axis=-1, keepdims=True)
        return ops.cast(wide * ops.rsqrt(ops.maximum(squared, self.epsilon**2)), x.dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "temperature": self.temperature, "epsilon": self.epsilon}


@serializable
class Gaussian(_Scoring):
    """Gaussian scores, `-|q - k|² / 2 w²`, with one learned width w for each head.

    Softmax of them is the Nadaraya-Watson estimator. `|q|²` is omitted: it is the same for all keys of a query and does not
    change the softmax.

    Args:
        width: float > 0. Initial w. None for `H^(1/4)`, where `q · k` has the same factor as in `ScaledDot`.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: `width` not above 0.

    Example:

    >>> import numpy as np
    >>> query, keys = np.array([1.0]).reshape(1, 1, 1, 1), np.array([1.0, 3.0]).reshape(1, 2, 1, 1)
    >>> Gaussian(width=1.0)(query, keys).numpy().round(3).ravel().tolist()  # Without -|q|² / 2.
    [0.5, -1.5]

    Reference: Zhang et al., Dive into Deep Learning, arXiv 2106.11342, "Attention Pooling by Similarity"; Tsai et al.,
    Transformer Dissection, arXiv 1908.11775, section 3.1.
    """

    def __init__(self, width: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if width is not None and width <= 0:
            raise ValueError(f"width must be positive. Received: {width}")
        self.width = width

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        width = query_shape[3] ** 0.25 if self.width is None else self.width
        initializer = keras.initializers.Constant(math.log(width))
        self.log_width = self.add_weight(name="log_width", shape=(query_shape[2], 1), initializer=initializer)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        # An extra feature, 1 in queries and -|k|² / 2 in keys, adds the norm of the key within one matrix product.
        norm = -0.5 * ops.sum(ops.square(key), axis=-1, keepdims=True)
        query = ops.concatenate([query, ops.ones_like(query[..., :1])], axis=-1)
        return grouped_scores(query * ops.exp(-2.0 * self.log_width), ops.concatenate([key, norm], axis=-1))

    def get_config(self) -> Config:
        return {**super().get_config(), "width": self.width}


@serializable
class Bilinear(_Scoring):
    """Bilinear scores, `qᵀ M k`, with one M for each head; query and key heads may differ in width.

    Args:
        kernel_initializer: of M, `(N, H_query, H_key)`.

    Call arguments and returns: as for `Dot`.

    Example:

    >>> import numpy as np
    >>> Bilinear(kernel_initializer="ones")(np.ones((1, 1, 1, 2)), np.ones((1, 1, 1, 3))).numpy().ravel().tolist()
    [6.0]

    Reference: Luong et al., arXiv 1508.04025, section 3.1, "general".
    """

    def __init__(self, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[2], query_shape[3], key_shape[3]),
            initializer=self.kernel_initializer,
        )

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return grouped_scores(ops.einsum("btnq,nqk->btnk", query, self.kernel), key)

    def get_config(self) -> Config:
        return {**super().get_config(), "kernel_initializer": keras.initializers.serialize(self.kernel_initializer)}


@serializable
class Additive(_Scoring):
    """Additive scores, `vᵀ tanh(W q + U k)`, with W, U and v for each head. Query and key heads may differ in width.

    Memory: a tensor `(B, N, T · S, units)`, since the tanh of a sum is not a matrix product.

    Args:
        units: int, or None for the width of the query head. The width of the hidden layer.
        kernel_initializer: of W, U and v.

    Call arguments and returns: as for `Dot`.

    Example:

    >>> import numpy as np
    >>> layer = Additive(units=2, kernel_initializer="ones")
    >>> layer(np.full((1, 1, 1, 1), 20.0), np.zeros((1, 1, 1, 1))).numpy().ravel().tolist()
    [2.0]

    Reference: Bahdanau et al., arXiv 1409.0473, appendix A.1.2. There, W and U are the projections of the decoder state
    and of the annotations; inside `MultiHeadAttention` they come after its own projections.
    """

    def __init__(
        self, units: int | None = None, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        heads, units = query_shape[2], self.units or query_shape[3]

        def weight(name: str, *shape: int) -> keras.Variable:
            initializer = keras.initializers.get(self.kernel_initializer)
            return self.add_weight(name=name, shape=(heads, *shape), initializer=initializer)

        self.query_kernel = weight("query_kernel", query_shape[3], units)
        self.key_kernel = weight("key_kernel", key_shape[3], units)
        self.score_kernel = weight("score_kernel", units, 1)

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        heads = query.shape[2]
        if key.shape[2] != heads:
            key = ops.repeat(key, heads // key.shape[2], axis=2)
        return self.score(query, self.hidden_keys(key))

    def hidden_keys(self, key: Tensor) -> Tensor:
        """Returns `U k`, `(B, N, S, units)`, which is shared by all queries of a step-by-step decoder."""
        return shared_matmul(ops.transpose(key, (0, 2, 1, 3)), self.key_kernel)

    def score(self, query: Tensor, hidden_keys: Tensor) -> Tensor:
        """Returns the scores of queries and the result of `hidden_keys`."""
        heads, units = query.shape[2], self.score_kernel.shape[1]
        length, key_length = ops.shape(query)[1], ops.shape(hidden_keys)[2]
        hidden = shared_matmul(ops.transpose(query, (0, 2, 1, 3)), self.query_kernel)
        query = ops.reshape(hidden, (-1, length, 1, units))
        key = ops.reshape(hidden_keys, (-1, 1, key_length, units))
        # (B, N, T · S, U): some TFLite delegates support tensors of rank 4 at most.
        hidden = ops.reshape(ops.tanh(query + key), (-1, heads, length * key_length, units))
        return ops.reshape(shared_matmul(hidden, self.score_kernel), (-1, heads, length, key_length))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@serializable
class Location(_Scoring):
    """Location-based scores, `W q`: the score of slot s depends on the query only, not on the key.

    Args:
        max_sequence_length: int. The number of slots of W.
        kernel_initializer: of W, `(N, H, max_sequence_length)`.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: statically more keys than `max_sequence_length`.

    Example:

    >>> import numpy as np
    >>> layer = Location(max_sequence_length=8, kernel_initializer="ones")
    >>> layer(np.ones((1, 1, 1, 4)), np.zeros((1, 3, 1, 4))).numpy().ravel().tolist()
    [4.0, 4.0, 4.0]

    Reference: Luong et al., arXiv 1508.04025, equation 8.
    """

    def __init__(
        self, max_sequence_length: int = 512, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[2], query_shape[3], self.max_sequence_length),
            initializer=self.kernel_initializer,
        )

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        if key.shape[1] is not None and key.shape[1] > self.max_sequence_length:
            raise ValueError(f"{key.shape[1]} keys are more than max_sequence_length={self.max_sequence_length}.")
        kernel = ops.convert_to_tensor(self.kernel)[:, :, : ops.shape(key)[1]]
        return shared_matmul(ops.transpose(query, (0, 2, 1, 3)), kernel)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


SCORINGS: dict[str, type[keras.layers.Layer]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "soft_capped_dot": SoftCappedDot,
    "bilinear": Bilinear,
    "additive": Additive,
    "cosine": Cosine,
    "gaussian": Gaussian,
    "location": Location,
}
