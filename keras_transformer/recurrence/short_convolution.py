"""Short causal convolutions, one filter for each channel, with the last tokens as their state."""

from __future__ import annotations

from typing import Unpack, cast

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.partition.bands import last_rows
from keras_transformer.utils.types import Initializer, LayerOptions, Shape, Tensor


class ShortConvolution(keras.layers.Layer):
    """Causal depthwise convolution: `y_t = Σ_i w_i x_{t - K + 1 + i} (+ b)`, for a kernel of K tokens.

    Args:
        kernel_size: int >= 2. K.
        use_bias: bool. Whether there is a bias b.
        kernel_initializer: initializer of w.

    Call arguments:
        x: float `(B, T, C)`, zeros at padding, which is treated as tokens of zeros.
        mask: float `(B, T)`, 0 for padding, or None.
        before: float `(B, K - 1, C)`: the tokens before the first. None for zeros.

    Returns:
        `(B, T, C)`; and the last K - 1 tokens that are not padding, float32 `(B, K - 1, C)`, or None if `before` is None.
        With `before`, padding must be on the right.

    Raises:
        ValueError: `kernel_size` below 2.

    Weights: "kernel" `(K, C, 1)`, as of `keras.layers.DepthwiseConv1D`, and "bias" `(C,)`.
    """

    bias: keras.Variable | None

    def __init__(
        self,
        kernel_size: int,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if positive("kernel_size", kernel_size) == 1:
            raise ValueError("kernel_size must be 2 or more. Received: 1")
        self.supports_masking = True
        self.kernel_size = kernel_size
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, x_shape: Shape) -> None:
        channels = x_shape[-1]
        self.kernel = self.add_weight(
            name="kernel", shape=(self.kernel_size, channels, 1), initializer=self.kernel_initializer.clone()
        )
        self.bias = self.add_weight(name="bias", shape=(channels,), initializer="zeros") if self.use_bias else None

    def call(self, x: Tensor, mask: Tensor | None = None, before: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        context, length = self.kernel_size - 1, ops.shape(x)[1]
        no_tokens = (ops.shape(x)[0], context, x.shape[2])
        first = ops.zeros(no_tokens, x.dtype) if before is None else ops.cast(before, x.dtype)
        joined = ops.concatenate([first, x], axis=1)
        kernel = ops.cast(ops.reshape(self.kernel, (self.kernel_size, -1)), x.dtype)
        y = cast("Tensor", sum(joined[:, each : each + length] * kernel[each] for each in range(self.kernel_size)))
        y = y if self.bias is None else y + ops.cast(self.bias, x.dtype)
        return y, None if before is None else ops.cast(last_rows(joined, length, mask, context), "float32")
