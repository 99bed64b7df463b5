"""Token shift of RWKV: mixes of each token with the previous one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.types import ArrayLike, LayerOptions, Shape, Tensor


class TokenShift(keras.layers.Layer):
    """Mixes of each token with the previous one: `μ x_t + (1 - μ) x_{t - 1}`, for each learned vector μ.

    Args:
        mixes: dict from name to float array `(D,)`: the initial value of each μ.
        of_previous: bool. Whether μ is the share of the previous token: `(1 - μ) x_t + μ x_{t - 1}`. Default False.

    Call arguments:
        x: float `(B, T, D)`, zeros at padding, which is treated as a token of zeros.
        mask: float `(B, T)`, 0 for padding, or None.
        before: float `(B, D)`: the token before the first. None for zeros.

    Returns:
        A list of `(B, T, D)`, one for each mix; and the last token that is not padding, float32 `(B, D)`, or None if
        `before` is None. With `before`, padding must be on the right.
    """

    def __init__(
        self, mixes: Mapping[str, ArrayLike], of_previous: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.mixes = mixes
        self.of_previous = of_previous

    def build(self, x_shape: Shape) -> None:
        self._weights_of_mixes = [
            self.add_weight(
                shape=(x_shape[-1],),
                initializer=lambda shape, dtype, start=start: ops.convert_to_tensor(start, dtype),
                name=f"mix_{name}",
            )
            for name, start in self.mixes.items()
        ]

    def call(
        self, x: Tensor, mask: Tensor | None = None, before: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor | None]:
        first = ops.zeros_like(x[:, :1]) if before is None else ops.cast(ops.expand_dims(before, 1), x.dtype)
        joined = ops.concatenate([first, x], axis=1)  # (B, T + 1, D)
        previous = joined[:, : ops.shape(x)[1]]
        # Equal to the formula, with one product less.
        near, far = (x, previous) if self.of_previous else (previous, x)
        difference = far - near
        mixed = [near + ops.cast(mix, x.dtype) * difference for mix in self._weights_of_mixes]
        return mixed, None if before is None else ops.cast(_last(joined, mask), "float32")


def _last(joined, mask):
    """Returns the last vector of each row of `(B, T + 1, D)` that is not padding, `(B, D)`."""
    if mask is None:
        return joined[:, -1]
    length = ops.cast(ops.sum(mask, axis=1), "int32")
    picked = ops.one_hot(length, ops.shape(joined)[1], dtype=joined.dtype)  # (B, T + 1)
    return ops.sum(joined * ops.expand_dims(picked, 2), axis=1)
