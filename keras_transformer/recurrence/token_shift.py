"""Token shift: each token beside the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_transformer.utils.types import ArrayLike, Shape, Tensor


class TokenShift(keras.layers.Layer):
    """Gives a token's mixtures with the one before it: `μ x_t + (1 - μ) x_{t - 1}`, one for each vector μ.

    Args:
        mixes: dict of name to float array `(D,)`: where each learned μ starts.

    Call arguments:
        x: float `(B, T, D)`, zeros at padding, which counts as a token of zeros.
        mask: float `(B, T)`, 0 for padding, or None.
        before: float `(B, D)`: the token before the first; None for zeros.

    Returns:
        A list of `(B, T, D)`, one for each mix; and the last token that is no padding, float32 `(B, D)`, or None where
        `before` is None. Padding then stands on the right.
    """

    def __init__(self, mixes: Mapping[str, ArrayLike], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.mixes = mixes

    def build(self, x_shape: Shape) -> None:
        self._weights_of_mixes = [
            self.add_weight(
                shape=(x_shape[-1],),
                initializer=lambda shape, dtype, start=start: ops.convert_to_tensor(start, dtype),
                name=f"mix_{name}",
            )
            for name, start in self.mixes.items()
        ]

    def call(self, x: Tensor, mask: Tensor = None, before: Tensor = None) -> Tensor:
        first = ops.zeros_like(x[:, :1]) if before is None else ops.cast(ops.expand_dims(before, 1), x.dtype)
        joined = ops.concatenate([first, x], axis=1)  # (B, T + 1, D)
        previous = joined[:, : ops.shape(x)[1]]
        # One product fewer than the formula has.
        difference = x - previous
        mixed = [previous + ops.cast(mix, x.dtype) * difference for mix in self._weights_of_mixes]
        return mixed, None if before is None else ops.cast(_last(joined, mask), "float32")


def _last(joined, mask):
    """Of each row of `(B, T + 1, D)`, the vector that stands after all tokens that are no padding: `(B, D)`."""
    if mask is None:
        return joined[:, -1]
    length = ops.cast(ops.sum(mask, axis=1), "int32")
    picked = ops.one_hot(length, ops.shape(joined)[1], dtype=joined.dtype)  # (B, T + 1)
    return ops.sum(joined * ops.expand_dims(picked, 2), axis=1)
