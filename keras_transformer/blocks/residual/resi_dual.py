"""ResiDual: a stream with norms and a stream without, through all blocks."""

import keras
from keras import ops

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize


@serializable
class ResiDualResidual(Residual):
    """`x = norm(x + f(x))`, as post-norm has it, and beside it a sum of all f(x), as pre-norm has it, `s = s + f(x)`.

    Both start as the input, and a stack ends with `x + norm(s)`. Between the blocks they stand side by side,
    `(B, T, 2, D)`: `OpenStreams` stands in front of a stack, and `JoinStreams` behind. A block that is called with
    `(B, T, D)` is a stack by itself.

    Args:
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy.

    Reference: Xie et al., ResiDual: Transformer with Dual Residual Connections, arXiv 2304.14802, section 3. Its scale of
    the second stream, against overflow in float16, is left out: the norm takes it away again, and bfloat16 needs none.
    """

    _norm_names = ("norm",)
    num_streams = 2

    def stack_input_layer(self, **options):
        return OpenStreams(**options)

    def stack_output_layer(self, norm, **options):
        return JoinStreams(norm, **options)

    def pre(self, x, mask=None, training=None):
        return x[:, :, 0]

    def post(self, x, y, mask=None, training=None):
        normalized = self._normalize("norm", x[:, :, 0] + y, mask, training)
        return ops.stack([normalized, x[:, :, 1] + y], axis=2)


@serializable
class OpenStreams(keras.layers.Layer):
    """Tokens twice, side by side: `(B, T, D)` to `(B, T, 2, D)`.

    Example:

    >>> import numpy as np
    >>> OpenStreams()(np.array([[[3.0]]])).numpy().tolist()
    [[[[3.0], [3.0]]]]
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs):
        return ops.stack([inputs, inputs], axis=2)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:2], 2, input_shape[2])


@serializable
class JoinStreams(keras.layers.Layer):
    """`x + norm(s)` of the streams x and s: `(B, T, 2, D)` to `(B, T, D)`.

    Args:
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy.

    Raises:
        ValueError: tokens without streams.

    Example:

    >>> import numpy as np
    >>> streams = np.array([[[[5.0, 5.0], [1.0, -1.0]]]])
    >>> JoinStreams()(streams).numpy().round(1).tolist()
    [[[6.0, 4.0]]]
    """

    def __init__(self, norm="layer_norm", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.norm = clone(
            resolve(norm, NORMS, keras.layers.Layer, argument="norm"), name="norm", dtype=self.dtype_policy
        )

    def build(self, input_shape):
        if len(input_shape) != 4:
            raise ValueError(
                f"{self.name}: ResiDual ends stacks that OpenStreams begins, as those of models.Encoder, Decoder and "
                f"Transformer. Received tokens of shape {input_shape}, without a second stream."
            )
        self.norm.build((*input_shape[:2], input_shape[-1]))

    def call(self, inputs, mask=None, training=None):
        second = inputs[:, :, 1]
        if isinstance(self.norm, keras.layers.BatchNormalization):
            return inputs[:, :, 0] + self.norm(second, mask=mask, training=training)
        return inputs[:, :, 0] + self.norm(second)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:2], input_shape[-1])

    def get_config(self):
        return {**super().get_config(), "norm": serialize(self.norm)}
