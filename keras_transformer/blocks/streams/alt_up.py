"""AltUp (alternating updates): several streams of tokens, of which a block computes one and predicts the others."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import Projection, token_projection
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor

# The smallest mean square of a projected stream.
_SMALLEST = 1e-5


@serializable
class AltUp(keras.layers.Layer):
    """Prediction and correction of S streams around a block that computes only one of them.

    Prediction: `p_i = x_i + Σ_j P_ij x_j`. Correction, for the output y of the block, which computes stream a:
    `c_i = p_i + (1 + C_i) (y - p_a)`. P and C are linear in `tanh(norm(·) W / D)`, of stream a or of y.

    Args:
        num_streams: int >= 2. S.
        active: int in [0, S). a.
        coefficient_limit: float > 0, or None. In training, the weights of P and C are clipped to this magnitude.
        norm: a name in `NORMS`, or a norm layer to copy.

    Call arguments: `predict` and `correct` have arguments of their own. A call returns the prediction.
        streams: float `(B, T, S, D)`.

    Returns:
        `(B, T, S, D)`.

    Raises:
        ValueError: sizes out of range.

    Weights: "output_scale" `(D,)`, which the block multiplies with the corrected stream a.

    Example:

    >>> import numpy as np
    >>> tuple(AltUp(num_streams=3)(np.ones((1, 2, 3, 8), "float32")).shape)
    (1, 2, 3, 8)

    Reference: Baykal et al., Alternating Updates for Efficient Transformers, arXiv 2301.13310, section 3, in the form of the
    code of Gemma 3n, where P and C depend on the token.
    """

    def __init__(
        self,
        num_streams: int,
        active: int = 0,
        coefficient_limit: float | None = None,
        norm: LayerLike = "rms_norm",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_streams = positive("num_streams", num_streams)
        if num_streams < 2 or not 0 <= active < num_streams:
            raise ValueError(
                f"AltUp needs at least 2 streams, and active among them. Received: {num_streams}, {active}"
            )
        self.active = active
        self.coefficient_limit = coefficient_limit
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self.kernel_initializer = keras.initializers.get("glorot_uniform")

    def build(self, streams_shape: Shape) -> None:
        width, count, tokens = streams_shape[-1], self.num_streams, streams_shape[:2]
        self.router_norm = clone(self.norm, name="router_norm", dtype=self.dtype_policy)
        self.router_norm.build((*tokens, width))
        sizes = {"router": (width, count), "prediction": (count, count * count), "correction": (count, count)}
        for name, (inputs, outputs) in sizes.items():
            layer = token_projection(self, name, outputs, use_bias=False)
            layer.build((*tokens, inputs))
            setattr(self, name, layer)
        self.output_scale = self.add_weight(name="output_scale", shape=(width,), initializer="ones")

    def call(self, streams: Tensor, training: bool | None = None) -> Tensor:
        return self.predict(streams, training)

    def predict(self, streams: Tensor, training: bool | None = None) -> Tensor:
        """Returns the prediction of all streams `(B, T, S, D)`."""
        length, count = ops.shape(streams)[1], self.num_streams
        mixing = self._coefficients(self.prediction, streams[:, :, self.active], training)
        return streams + ops.matmul(ops.reshape(mixing, (-1, length, count, count)), streams)

    def correct(self, predicted: Tensor, output: Tensor, training: bool | None = None) -> Tensor:
        """Returns all streams, `(B, T, S, D)`, corrected by the output `(B, T, D)` of the block."""
        factors = self._coefficients(self.correction, output, training) + 1.0
        change = output - predicted[:, :, self.active]
        return predicted + ops.expand_dims(factors, 3) * ops.expand_dims(change, 2)

    def scaled(self, streams: Tensor) -> Tensor:
        """Returns stream a, `(B, T, D)`, times "output_scale"."""
        return streams[:, :, self.active] * ops.cast(self.output_scale, streams.dtype)

    def _coefficients(self, projection: Projection, x: Tensor, training: bool | None) -> Tensor:
        routed = self.router(self.router_norm(x) * (1.0 / x.shape[-1]))
        routed = ops.cast(ops.tanh(ops.cast(routed, "float32")), x.dtype)
        if not training or self.coefficient_limit is None:
            return projection(routed)
        limit = self.coefficient_limit
        return ops.matmul(routed, ops.clip(ops.cast(projection.kernel, x.dtype), -limit, limit))

    def compute_output_shape(self, streams_shape: Shape) -> Shape:
        return streams_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_streams": self.num_streams,
            "active": self.active,
            "coefficient_limit": self.coefficient_limit,
            "norm": serialize(self.norm),
        }


class _Streams(keras.layers.Layer):
    """Base class of the layers before and after the blocks, with a projection for each stream but the first."""

    def __init__(self, num_streams: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.num_streams = positive("num_streams", num_streams)
        self.kernel_initializer = keras.initializers.get("glorot_uniform")

    def build(self, input_shape: Shape) -> None:
        shape = (*input_shape[:2], input_shape[-1])
        self.projections = [
            token_projection(self, f"projection_{index}", shape[-1], use_bias=False)
            for index in range(1, self.num_streams)
        ]
        for layer in self.projections:
            layer.build(shape)

    def get_config(self) -> Config:
        return {**super().get_config(), "num_streams": self.num_streams}


@serializable
class StreamExpansion(_Streams):
    """The streams of `AltUp` from one: `x_0 = x`, and `x_i = x W_i |x| / |x W_i|`, of the magnitude of x.

    Args:
        num_streams: int >= 1. S.

    Call arguments:
        inputs: float `(B, T, D)`.

    Returns:
        `(B, T, S, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(StreamExpansion(num_streams=3)(np.ones((1, 2, 8), "float32")).shape)
    (1, 2, 3, 8)

    Reference: the code of Gemma 3n.
    """

    def call(self, inputs: Tensor) -> Tensor:
        others = [_of_magnitude(layer(inputs), inputs) for layer in self.projections]
        return ops.stack([inputs, *others], axis=2)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return (*inputs_shape[:2], self.num_streams, inputs_shape[-1])


@serializable
class StreamReduction(_Streams):
    """One stream from those of `AltUp`: the mean of `x_0` and of all `x_i W_i |x_0| / |x_i W_i|`.

    Args:
        num_streams: int >= 1. S.

    Call arguments:
        streams: float `(B, T, S, D)`.

    Returns:
        `(B, T, D)`.

    Example:

    >>> import numpy as np
    >>> tuple(StreamReduction(num_streams=3)(np.ones((1, 2, 3, 8), "float32")).shape)
    (1, 2, 8)

    Reference: the code of Gemma 3n.
    """

    def call(self, streams: Tensor) -> Tensor:
        total = first = streams[:, :, 0]
        for index, layer in enumerate(self.projections, start=1):
            total = total + _of_magnitude(layer(streams[:, :, index]), first)
        return total * (1.0 / self.num_streams)

    def compute_output_shape(self, streams_shape: Shape) -> Shape:
        return (*streams_shape[:2], streams_shape[-1])


def _of_magnitude(x: Tensor, other: Tensor) -> Tensor:
    """Returns `x` with the root mean square of `other`."""
    wanted = ops.sqrt(ops.mean(ops.square(other), axis=-1, keepdims=True))
    found = ops.sqrt(ops.maximum(ops.mean(ops.square(x), axis=-1, keepdims=True), _SMALLEST))
    return x * wanted / found
