"""Random features, whose dot products are unbiased estimates of a kernel of queries and keys."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.kernel_features.feature_maps import FeatureMap
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

# Added to every feature, so that no sum of them is zero. The values of the implementations by Google and in PyTorch.
_SOFTMAX_FLOOR, _RELU_FLOOR = 1e-4, 1e-3
# Largest exponent of a key with causality, where no maximum over keys is subtracted: sums of features stay in float32.
_LARGEST_EXPONENT = 60.0
# Below every projection, so that padded keys do not change the maximum.
_MASKED_SCORE = -1e9


@serializable
class RandomFeatures(FeatureMap):
    """Positive orthogonal random features of the softmax kernel (FAVOR+), or of the ReLU kernel.

    With `x' = x / H^¼` and a random matrix W, "softmax" is `φ(x) = M^-½ (exp(W x' - |x'|² / 2 - c) + 1e-4)`, for which
    `φ(q) · φ(k)` has the mean `exp(q · k / √H)`; "relu" is `φ(x) = max(W x', 0) + 1e-3`. c prevents overflow and cancels out
    in attention: for a query it is the largest of its `W x'`, for keys the largest over all keys of a head. With causality c
    is 0 for keys, since that maximum would include later keys, and exponents are at most 60.

    Args:
        num_features: int >= 1, or None for `floor(H ln H)`. M: the error is proportional to `1 / √M`.
        kernel: "softmax" or "relu".
        seed: int or None. Seed of W and of each `redraw`.

    Call arguments:
        x: float32 `(B, T, N, H)`.

    Returns:
        float32 `(B, T, N, M)`.

    Raises:
        ValueError: `num_features` below 1; unknown kernel.

    Example:

    >>> import numpy as np
    >>> features = RandomFeatures(num_features=8, kernel="relu", seed=0)
    >>> tuple(features(np.ones((1, 5, 2, 4))).shape)
    (1, 5, 2, 8)

    Reference: Choromanski et al., Rethinking Attention with Performers, arXiv 2009.14794, lemma 1 and section 2.4.
    Deviation: no maximum over keys with causality, where the authors' code takes it over the whole sequence.
    """

    def __init__(
        self,
        num_features: int | None = None,
        kernel: str = "softmax",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if kernel not in ("softmax", "relu"):
            raise ValueError(f"kernel must be 'softmax' or 'relu'. Received: {kernel!r}")
        self.num_features = None if num_features is None else positive("num_features", num_features)
        self.kernel = kernel
        self.seed = seed
        self._generator: np.random.Generator | None = None

    def features(self, width: int) -> int:
        return self.num_features or max(1, int(width * math.log(width)))

    def build(self, shape: Shape) -> None:
        width = shape[-1]
        self.projection = self.add_weight(
            name="projection",
            shape=(self.features(width), width),
            initializer=lambda shape, dtype=None: ops.convert_to_tensor(self._draw(*shape), dtype),
            trainable=False,
            autocast=False,
        )

    def call(self, x: Tensor) -> Tensor:
        return self.map_query(x)

    def map_query(self, query: Tensor) -> Tensor:
        projected = self._project(query)
        if self.kernel == "relu":
            return ops.relu(projected) + _RELU_FLOOR
        return self._exponentials(query, projected, ops.max(projected, axis=-1, keepdims=True))

    def map_key(self, key: Tensor, key_mask: Tensor | None = None, causal: bool = False) -> Tensor:
        projected = self._project(key)
        if self.kernel == "relu":
            return ops.relu(projected) + _RELU_FLOOR
        if causal:
            return self._exponentials(key, projected, None)
        seen = projected
        if key_mask is not None:
            mask = ops.expand_dims(ops.cast(key_mask, "bool"), (2, 3))
            seen = ops.where(mask, projected, ops.full_like(projected, _MASKED_SCORE))
        return self._exponentials(key, projected, ops.max(seen, axis=(1, 3), keepdims=True))

    def redraw(self) -> None:
        """Samples a new W. Redraw regularly in training, so that a model does not adapt to the errors of one sample."""
        self.projection.assign(self._draw(*self.projection.shape))

    def _project(self, x: Tensor) -> Tensor:
        w = ops.transpose(ops.convert_to_tensor(self.projection)) * x.shape[-1] ** -0.25
        rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), w)
        return ops.reshape(rows, (-1, ops.shape(x)[1], x.shape[2], w.shape[-1]))

    def _exponentials(self, x: Tensor, projected: Tensor, largest: Tensor | None) -> Tensor:
        exponents = projected - ops.sum(ops.square(x), axis=-1, keepdims=True) * (0.5 * x.shape[-1] ** -0.5)
        if largest is not None:  # Without a gradient: it cancels out in attention.
            exponents = exponents - ops.stop_gradient(largest)
        exponents = ops.minimum(exponents, _LARGEST_EXPONENT)
        return (ops.exp(exponents) + _SOFTMAX_FLOOR) * self.projection.shape[0] ** -0.5

    def _draw(self, count: int, width: int) -> np.ndarray:
        """Samples rows that are orthogonal in blocks of `width`, with the norms of rows of standard normal numbers."""
        if self._generator is None:
            seed = np.random.randint(2**31) if self.seed is None else self.seed
            self._generator = np.random.default_rng(seed)
        blocks = [np.linalg.qr(self._generator.normal(size=(width, width)))[0].T for _ in range(-(-count // width))]
        norms = np.linalg.norm(self._generator.normal(size=(count, width)), axis=1, keepdims=True)
        return (np.concatenate(blocks)[:count] * norms).astype("float32")

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "kernel": self.kernel,
            "seed": self.seed,
        }
