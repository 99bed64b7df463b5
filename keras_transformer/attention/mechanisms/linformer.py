"""Linformer attention: keys and values projected to a fixed length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


_SHARINGS = ("headwise", "key_value", "none")


@serializable
class LinformerAttention(SoftmaxBasedMechanism):
    """Linformer attention, `softmax(scores(Q, Eᵀ K)) Fᵀ V`: keys and values are projected to length `projected_length`.

    E and F have a row for every position up to `max_sequence_length`; a shorter sequence uses the first rows. Time and
    memory grow with `(T + S) · projected_length`. Padding is replaced with zeros, so it has no effect.

    Args:
        max_sequence_length: int >= 1. The longest sequence of keys.
        projected_length: int >= 1. k in the paper; independent of the length of the sequence.
        sharing: "headwise": one E and one F for all heads; "key_value": E = F, for all heads; "none": an E and an F for
            each key head.
        kernel_initializer: of E and F. None for a normal distribution of variance `1 / projected_length`.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Bidirectional self- and cross-attention (each projected key mixes all positions);
        positions that rotate queries and keys.

    Returns:
        The context `(B, T, N, H_value)`.

    Raises:
        ValueError: sizes below 1; unknown sharing; more keys than `max_sequence_length`; a call with causality, a cache,
            scores, an `attention_mask`, a window or a position that adds to scores.

    Example:

    >>> import numpy as np
    >>> x = np.zeros((1, 4, 1, 2))
    >>> values = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    >>> layer = LinformerAttention(max_sequence_length=8, projected_length=2, kernel_initializer="ones")
    >>> layer(x, x, values).numpy().ravel().tolist()
    [10.0, 10.0, 10.0, 10.0]

    Reference: Wang et al., Linformer, arXiv 2006.04768, equation 7 and section 4 (sharing). Deviations: no sharing between
    layers, and linear projections only (the paper also suggests pooling and convolution).
    """

    supports = frozenset({"bidirectional", "cross"})

    def __init__(
        self,
        max_sequence_length: int = 512,
        projected_length: int = 128,
        sharing: str = "headwise",
        kernel_initializer: Initializer = None,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        if sharing not in _SHARINGS:
            raise ValueError(f"sharing must be one of {_SHARINGS}. Received: {sharing!r}")
        self.max_sequence_length = positive("max_sequence_length", max_sequence_length)
        self.projected_length = positive("projected_length", projected_length)
        self.sharing = sharing
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        heads = (key_shape[2],) if self.sharing == "none" else ()
        self.key_projection = self._make_projection("key_projection", heads)
        if self.sharing != "key_value":
            self.value_projection = self._make_projection("value_projection", heads)
        projected = (key_shape[0], self.projected_length)
        build_once(self.softmax, query_shape, (*projected, *key_shape[2:]), (*projected, *value_shape[2:]))

    def _make_projection(self, name: str, heads: tuple[int, ...]) -> keras.Variable:
        initializer = self.kernel_initializer or keras.initializers.RandomNormal(stddev=self.projected_length**-0.5)
        # A shared initializer would return equal weights.
        initializer = initializer.clone()
        shape = (*heads, self.max_sequence_length, self.projected_length)
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        length = key.shape[1]
        if length is not None and length > self.max_sequence_length:
            raise ValueError(f"{length} keys are more than max_sequence_length={self.max_sequence_length}.")
        if visibility.key_mask is not None:
            mask = ops.expand_dims(visibility.key_mask, (2, 3))
            key, value = key * ops.cast(mask, key.dtype), value * ops.cast(mask, value.dtype)
        values = self.key_projection if self.sharing == "key_value" else self.value_projection
        key, value = _project(key, self.key_projection), _project(value, values)
        slots = (ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key))
        visibility = Visibility.from_slots(*slots, query_mask=visibility.query_mask)
        return self.softmax(query, key, value, visibility=visibility, training=training)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "projected_length": self.projected_length,
            "sharing": self.sharing,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _project(x: Tensor, projection):
    """`(B, S, K, H)` to `(B, k, K, H)` by a projection `(S_max, k)`, or one for each head `(K, S_max, k)`."""
    length, heads, width = ops.shape(x)[1], x.shape[2], x.shape[3]
    projection = ops.cast(ops.convert_to_tensor(projection), x.dtype)
    if len(projection.shape) == 3:
        projection = ops.expand_dims(projection[:, :length], 0)  # (1, K, S, k)
        x = ops.matmul(ops.transpose(projection, (0, 1, 3, 2)), ops.transpose(x, (0, 2, 1, 3)))
        return ops.transpose(x, (0, 2, 1, 3))
    # All examples in one matrix product of rank 2, forward and for both gradients.
    columns = ops.reshape(ops.transpose(ops.reshape(x, (-1, length, heads * width)), (1, 0, 2)), (length, -1))
    projected = ops.matmul(ops.transpose(projection[:length]), columns)
    projected = ops.transpose(ops.reshape(projected, (projection.shape[1], -1, heads * width)), (1, 0, 2))
    return ops.reshape(projected, (-1, projection.shape[1], heads, width))
