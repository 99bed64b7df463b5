"""Performer attention (FAVOR+): softmax attention by random features."""

from __future__ import annotations

from typing import Any, Unpack

from keras_transformer.attention.kernel_features.random_features import RandomFeatures
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.linear import LinearAttention
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Cache, Config, DType, LayerOptions, Shape, Tensor

# Avoids 0 / 0 only: the floor of the features keeps their sums above it.
_EPSILON = 1e-30


@serializable
class PerformerAttention(Mechanism):
    """FAVOR+ attention (Performer), an estimate of softmax attention at linear cost.

    `y_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i) · Σ_j φ(k_j)`, where φ are M positive orthogonal random features, see
    `RandomFeatures`. Time grows with `T · M · H`, memory with `T · M`; with causality, in chunks of C, time with
    `T · (C + M) · H` and memory with `T · (C + M) + T / C · M · H`. The error relative to softmax is proportional to
    `1 / √M`, and grows fast with the norms of queries and keys: it is small if `|q| |k| / √H` is a small number.

    Args:
        num_features: int >= 1, or None for `floor(H ln H)`. M.
        kernel: "softmax", or "relu": features `max(W x, 0)`, which do not estimate softmax but often train as well.
        chunk_size: int >= 1. C, with causality; affects the cost only.
        dropout: float in [0, 1). As in `LinearAttention`.
        seed: int or None. Seed of the features and the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, bidirectional cross-attention;
        positions that rotate queries and keys. The cache is that of `LinearAttention`, and is invalid after the features
        are redrawn.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: `num_features` or `chunk_size` below 1; unknown kernel; a call with scores, an `attention_mask`, a window
            or a position that adds to scores.

    Example:

    >>> import numpy as np
    >>> x = np.zeros((1, 3, 1, 2))
    >>> values = np.array([0.0, 2.0, 7.0]).reshape(1, 3, 1, 1)
    >>> PerformerAttention(num_features=4)(x, x, values).numpy().round(3).ravel().tolist()
    [3.0, 3.0, 3.0]

    Reference: Choromanski et al., Rethinking Attention with Performers, arXiv 2009.14794, equation 4, lemma 1, section 2.4;
    deviations: see `RandomFeatures`. With causality, the authors' code adds 1e-6 to the sums of the features.
    """

    supports = LinearAttention.supports
    cache_is_rewindable = False

    def __init__(
        self,
        num_features: int | None = None,
        kernel: str = "softmax",
        chunk_size: int = 128,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.linear = LinearAttention(
            RandomFeatures(num_features, kernel, seed=seed, dtype="float32", name="features"),
            epsilon=_EPSILON,
            chunk_size=chunk_size,
            dropout=dropout,
            seed=seed,
            dtype=self.dtype_policy,
            name="linear",  # A fixed name keeps the paths of weights independent of other layers.
        )

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        build_once(self.linear, query_shape, key_shape, value_shape)

    def attend(self, *operands: Any, **options: Any) -> Tensor:
        return self.linear.attend(*operands, **options)

    def init_cache(
        self, batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: DType
    ) -> Cache:
        return self.linear.init_cache(batch_size, max_length, num_heads, key_dim, value_dim, dtype)

    def extend(self, *operands: Any, **options: Any) -> tuple[Tensor, Cache]:
        return self.linear.extend(*operands, **options)

    def redraw(self) -> None:
        """Redraws the random features, as `training.RedrawFeatures` does during training."""
        self.linear.feature_map.redraw()

    def get_config(self) -> Config:
        features = self.linear.feature_map
        return {
            **super().get_config(),
            "num_features": features.num_features,
            "kernel": features.kernel,
            "chunk_size": self.linear.chunk_size,
            "dropout": self.linear.dropout,
            "seed": features.seed,
        }
