"""Feature maps φ of linear attention, whose products `φ(q) · φ(k)` approximate a kernel of queries and keys."""

from __future__ import annotations

import math

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Shape, Tensor


class FeatureMap(keras.layers.Layer):
    """Base class of feature maps; a subclass implements `call`, and `features` if M is not H.

    Queries and keys have the same map unless `map_query` and `map_key` are overridden. Nonnegative features make
    nonnegative attention weights.

    Call arguments:
        x: float32 `(B, T, N, H)`.

    Returns:
        float32 `(B, T, N, M)`.

    Example:

    >>> import numpy as np
    >>> class Exponential(FeatureMap):
    ...     def call(self, x):
    ...         return ops.exp(x)
    >>> Exponential()(np.zeros((1, 1, 1, 2))).numpy().ravel().tolist()
    [1.0, 1.0]
    """

    def build(self, shape: Shape) -> None:
        """Creates the weights; the shape is that of the queries, `(B, T, N, H)`."""

    def features(self, width: int) -> int:
        """Returns the number of features M of a head of width `width`."""
        return width

    def map_query(self, query: Tensor) -> Tensor:
        """Returns the features of queries `(B, T, N, H)`."""
        return self.call(query)

    def map_key(self, key: Tensor, key_mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Returns the features of keys `(B, S, K, H)`.

        Args:
            key: float32 `(B, S, K, H)`.
            key_mask: boolean `(B, S)`, or None. Features of False keys are ignored. They must not change those of others.
            causal: bool. Whether the features of a key must not depend on the keys after it.
        """
        return self.call(key)

    def compute_output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.features(shape[-1]))

    def get_config(self) -> Config:  # Keras serializes a dtype policy only if this is overridden.
        return super().get_config()


@serializable
class Elu(FeatureMap):
    """Feature map `φ(x) = elu(x) + 1`.

    Example:

    >>> import numpy as np
    >>> Elu()(np.array([[[[0.0, 2.0]]]])).numpy().ravel().tolist()
    [1.0, 3.0]

    Reference: Katharopoulos et al., arXiv 2006.16236, equation 7.
    """

    def call(self, x: Tensor) -> Tensor:
        return ops.elu(x) + 1.0


@serializable
class Relu(FeatureMap):
    """Feature map `φ(x) = max(x, 0)`.

    Example:

    >>> import numpy as np
    >>> Relu()(np.array([[[[-1.0, 2.0]]]])).numpy().ravel().tolist()
    [0.0, 2.0]

    Reference: Kasai et al., Finetuning Pretrained Transformers into RNNs, arXiv 2103.13076. The paper's learned map before
    the ReLU is the projection of the attention layer here.
    """

    def call(self, x: Tensor) -> Tensor:
        return ops.relu(x)


@serializable
class Square(FeatureMap):
    """Feature map `φ(x) = x²`, elementwise.

    Example:

    >>> import numpy as np
    >>> Square()(np.array([[[[-1.0, 2.0]]]])).numpy().ravel().tolist()
    [1.0, 4.0]
    """

    def call(self, x: Tensor) -> Tensor:
        return ops.square(x)


@serializable
class Softmax(FeatureMap):
    """Feature map `φ(x) = [softmax(x), softmax(-x)]`, softmax over the features: M = 2 H.

    Example:

    >>> import numpy as np
    >>> Softmax()(np.zeros((1, 1, 1, 2))).numpy().ravel().tolist()
    [0.5, 0.5, 0.5, 0.5]

    Reference: Zhang et al., The Hedgehog & the Porcupine, arXiv 2402.04347. The paper's learned map before the softmax is
    the projection of the attention layer here.
    """

    def features(self, width: int) -> int:
        return 2 * width

    def call(self, x: Tensor) -> Tensor:
        return ops.concatenate([ops.softmax(x, axis=-1), ops.softmax(-x, axis=-1)], axis=-1)


@serializable
class Taylor(FeatureMap):
    """Feature map `φ(x) = [1, x / H^¼, x xᵀ / √(2 H)]`: M = 1 + H + H².

    `φ(q) · φ(k) = 1 + s + s² / 2` with `s = q · k / √H`, the second-order Taylor expansion of `exp(s)`; positive for any s.

    Example:

    >>> import numpy as np
    >>> Taylor()(np.full((1, 1, 1, 1), 2.0)).numpy().ravel().round(3).tolist()
    [1.0, 2.0, 2.828000068664551]

    Reference: Arora et al., Based, arXiv 2402.18668.
    """

    def features(self, width: int) -> int:
        return 1 + width + width**2

    def call(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        x = x * width**-0.25
        length = ops.shape(x)[1]
        rows = ops.reshape(x, (-1, width, 1))
        squares = ops.reshape(ops.matmul(rows, ops.reshape(x, (-1, 1, width))), (-1, length, x.shape[2], width**2))
        return ops.concatenate([ops.ones_like(x[..., :1]), x, squares / math.sqrt(2.0)], axis=-1)


FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    "elu": Elu,
    "relu": Relu,
    "softmax": Softmax,
    "square": Square,
    "taylor": Taylor,
}
