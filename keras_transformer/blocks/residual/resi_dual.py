"""ResiDual: a normalized and an unnormalized residual stream through all blocks."""

from __future__ import annotations

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class ResiDualResidual(Residual):
    """ResiDual: a post-norm stream `x = norm(x + f(x))` and an unnormalized pre-norm stream `s = s + f(x)`.

    Both streams start as the input, and a stack returns `x + norm(s)`. Blocks exchange the streams as `(B, T, 2, D)`:
    `OpenStreams` starts a stack and `JoinStreams` ends it. A block that is called with `(B, T, D)` does both itself.

    Args:
        norm: a name in `NORMS`, or a norm layer to copy.

    Example:

    >>> import numpy as np
    >>> streams = OpenStreams()(np.array([[[1.0, 3.0]]]))
    >>> ResiDualResidual().post(streams, np.array([[[0.0, 2.0]]], "float32")).numpy().round(2).tolist()
    [[[[-1.0, 1.0], [1.0, 5.0]]]]

    Reference: Xie et al., ResiDual: Transformer with Dual Residual Connections, arXiv 2304.14802, section 3. The paper's
    scaling of the second stream against overflow in float16 is omitted: the norm cancels it, and bfloat16 needs none.
    """

    _norm_names = ("norm",)
    num_streams = 2

    def stack_input_layer(self, **options: Any) -> keras.layers.Layer:
        return OpenStreams(**options)

    def stack_output_layer(self, norm: LayerLike, **options: Any) -> keras.layers.Layer:
        return JoinStreams(norm, **options)

    def pre(self, x: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x[:, :, 0]

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        normalized = self._normalize("norm", x[:, :, 0] + y, mask, training)
        return ops.stack([normalized, x[:, :, 1] + y], axis=2)


@serializable
class OpenStreams(keras.layers.Layer):
    """Starts the two streams of ResiDual, both equal to the input: `(B, T, D)` to `(B, T, 2, D)`.

    Example:

    >>> import numpy as np
    >>> OpenStreams()(np.array([[[3.0]]])).numpy().tolist()
    [[[[3.0], [3.0]]]]
    """

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        return ops.stack([inputs, inputs], axis=2)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:2], 2, input_shape[2])


@serializable
class JoinStreams(keras.layers.Layer):
    """Combines the streams x and s of ResiDual: `x + norm(s)`, `(B, T, 2, D)` to `(B, T, D)`.

    Args:
        norm: a name in `NORMS`, or a norm layer to copy.

    Raises:
        ValueError: inputs with a single stream.

    Example:

    >>> import numpy as np
    >>> streams = np.array([[[[5.0, 5.0], [1.0, -1.0]]]])
    >>> JoinStreams()(streams).numpy().round(1).tolist()
    [[[6.0, 4.0]]]
    """

    def __init__(self, norm: LayerLike = "layer_norm", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.norm = clone(
            resolve(norm, NORMS, keras.layers.Layer, argument="norm"), name="norm", dtype=self.dtype_policy
        )

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 4:
            raise ValueError(
                f"{self.name}: JoinStreams ends a stack that OpenStreams starts, as in models.Encoder, Decoder and "
                f"Transformer. Received inputs of shape {input_shape}, without a second stream."
            )
        self.norm.build((*input_shape[:2], input_shape[-1]))

    def call(self, inputs: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        second = inputs[:, :, 1]
        if isinstance(self.norm, keras.layers.BatchNormalization):
            return inputs[:, :, 0] + self.norm(second, mask=mask, training=training)
        return inputs[:, :, 0] + self.norm(second)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:2], input_shape[-1])

    def get_config(self) -> Config:
        return {**super().get_config(), "norm": serialize(self.norm)}
