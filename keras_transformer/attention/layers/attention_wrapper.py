"""Base class of self-attention layers that prepare the tokens of a `MultiHeadAttention`."""

from __future__ import annotations

from typing import Any, Unpack

import keras

from keras_transformer.attention.multi_head.multi_head_attention import MultiHeadAttention
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.utils.types import Config, Initializer, LayerOptions


class AttentionWrapper(TokenMixer):
    """Base of layers around a `MultiHeadAttention`, which is their sublayer `attention`.

    Args:
        num_heads, key_dim, dropout, use_bias, kernel_initializer, seed: as in `MultiHeadAttention`.
    """

    supports = frozenset({"bidirectional"})
    # Whether `attention` has these settings alone. A subclass for which it has others makes it by `_make_attention`.
    _is_plain = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        if self._is_plain:
            self.attention = self._make_attention()

    def _make_attention(self, **options: Any) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.num_heads,
            self.key_dim,
            dropout=self.dropout,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            seed=self.seed,
            name="attention",
            dtype=self.dtype_policy,
            **options,
        )

    output_dense = property(lambda self: self.attention.output_dense)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
