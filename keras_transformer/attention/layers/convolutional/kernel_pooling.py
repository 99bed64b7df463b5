"""Nadaraya-Watson kernel regression as attention pooling."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.layers.convolutional.kernels import FLAT_KERNELS, KERNELS
from keras_transformer.attention.masks import Visibility
from keras_transformer.utils.serialization import choice, serializable
from keras_transformer.utils.types import Config, LayerOptions, Outputs, Shape, Tensor

# Below every score.
_MASKED_SCORE = -1e30

# Up to this number of features, differences are computed per feature, exactly; above it, distances are one product.
_MAX_EXACT_FEATURES = 8


@serializable
class KernelPooling(keras.layers.Layer):
    """Nadaraya-Watson estimator: the value of a function at the queries as a kernel-weighted mean of its values at the keys.

    `f(x) = Σ_i K(|x - x_i| / w) y_i / Σ_i K(|x - x_i| / w)`. With noisy values it is regression; with one-hot ones, the
    probabilities of classes. The gaussian kernel is softmax attention with the scores `-|x - x_i|² / 2 w²`. Time and memory
    grow with `T · S`; it is computed in float32 under every dtype policy. With more than 8 features, distances are
    computed from products, with an error of about `1e-7 |x - x_1|² / w²` in squared distances over w².

    Args:
        kernel: "gaussian", "boxcar", "epanechnikov", "triangular" or "constant"; all except the first and
            the last are zero beyond one width.
        width: float > 0. The width w of the kernel, or its initial value.
        learn_width: bool. Whether w is learned, as `exp` of a weight. Not for "boxcar" and "constant", which have no
            gradient. If queries are the keys, use `leave_one_out`: otherwise the best width is 0.
        per_feature: bool. Whether there is one learned width per feature.
        leave_one_out: bool. Whether query i does not attend to key i in training, for queries that are the keys.

    Call arguments:
        query: float `(B, T, D)`, the points x.
        key: float `(B, S, D)`, the points x_i.
        value: float `(B, S, V)`, the values y_i.
        query_mask: boolean `(B, T)`, or None. The estimate of a False query is zeros.
        key_mask: boolean `(B, S)`, or None.
        attention_mask: boolean `(T, S)` or `(B, T, S)`, or None; True = may attend.
        return_attention_scores: bool.

    Returns:
        The estimates `(B, T, V)`, or `(estimates, weights)` with weights `(B, T, S)` that sum to 1. The estimate is zeros
        if there is no key within the kernel.

    Raises:
        ValueError: unknown kernel; a width that is not positive; a kernel whose width cannot be learned.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> x, y = np.array([[[0.0], [1.0], [3.0]]]), np.array([[[2.0], [4.0], [8.0]]])
    >>> np.array(KernelPooling("boxcar", width=1.5)(np.array([[[0.5], [9.0]]]), x, y)).tolist()
    [[[3.0], [0.0]]]

    Reference: Nadaraya, On Estimating Regression, 1964; Watson, Smooth Regression Analysis, 1964.
    """

    def __init__(
        self,
        kernel: str = "gaussian",
        width: float = 1.0,
        learn_width: bool = False,
        per_feature: bool = False,
        leave_one_out: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # Half precision would merge close points.
        choice(kernel, KERNELS, argument="kernel")
        if not width > 0:
            raise ValueError(f"width must be positive. Received: {width}")
        if learn_width and kernel in FLAT_KERNELS:
            raise ValueError(f"The width of kernel {kernel!r} cannot be learned: it has no gradient.")
        if per_feature and not learn_width:
            raise ValueError("per_feature needs learn_width=True. To use fixed widths, scale the features.")
        self.kernel = kernel
        self.width = float(width)
        self.learn_width = learn_width
        self.per_feature = per_feature
        self.leave_one_out = leave_one_out

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        if self.learn_width:
            self.log_width = self.add_weight(
                name="log_width",
                shape=(query_shape[-1] if self.per_feature else 1,),
                initializer=keras.initializers.Constant(math.log(self.width)),
                autocast=False,
            )

    def call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Outputs:
        seen = self._seen(query, key, query_mask, key_mask, attention_mask, training)
        weights = self._weights(self._squared_distances(query, key), seen)
        estimate = ops.matmul(weights, ops.cast(value, "float32"))
        estimate, weights = (ops.cast(x, self.compute_dtype) for x in (estimate, weights))
        return (estimate, weights) if return_attention_scores else estimate

    def _weights(self, squared, seen):
        """Returns the weights of keys, `(B, T, S)`: their sum is 1, or all are zero."""
        if self.kernel == "gaussian":
            # A softmax, because far from all keys the formula is 0 / 0.
            scores = -0.5 * squared
            if seen is None:
                return ops.softmax(scores, axis=-1)
            weights = ops.softmax(ops.where(seen, scores, ops.full_like(scores, _MASKED_SCORE)), axis=-1)
            return ops.where(seen, weights, ops.zeros_like(weights))
        weights = KERNELS[self.kernel](squared)
        if seen is not None:
            weights = ops.where(seen, weights, ops.zeros_like(weights))
        total = ops.sum(weights, axis=-1, keepdims=True)
        return weights / ops.where(total > 0, total, ops.ones_like(total))

    def _squared_distances(self, query, key):
        """Returns squared distances in units of w², float32 `(B, T, S)`."""
        scale = ops.exp(-self.log_width) if self.learn_width else 1.0 / self.width
        query, key = (ops.cast(x, "float32") * scale for x in (query, key))
        if query.shape[-1] <= _MAX_EXACT_FEATURES:
            key = ops.transpose(key, (0, 2, 1))
            return sum(
                ops.square(query[:, :, feature : feature + 1] - key[:, feature : feature + 1])
                for feature in range(query.shape[-1])
            )
        # Centered at the first key, to limit cancellation for points far from the origin.
        center = ops.stop_gradient(key[:, :1])
        query, key = query - center, key - center
        norms = [ops.sum(ops.square(x), axis=-1, keepdims=True) for x in (query, key)]
        product = ops.matmul(query, ops.transpose(key, (0, 2, 1)))
        return ops.relu(norms[0] + ops.transpose(norms[1], (0, 2, 1)) - 2.0 * product)

    def _seen(self, query, key, query_mask, key_mask, attention_mask, training):
        """Boolean `(B | 1, T | 1, S | 1)`, or None."""
        if self.leave_one_out and training:
            slots = (ops.arange(ops.shape(x)[1], dtype="int32") for x in (query, key))
            others = ops.not_equal(ops.expand_dims(next(slots), 1), ops.expand_dims(next(slots), 0))
            attention_mask = others if attention_mask is None else ops.logical_and(attention_mask, others)
        masks = Visibility(query_mask=query_mask, key_mask=key_mask, attention_mask=attention_mask).dense()
        return None if masks is None else ops.squeeze(masks, 1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel": self.kernel,
            "width": self.width,
            "learn_width": self.learn_width,
            "per_feature": self.per_feature,
            "leave_one_out": self.leave_one_out,
        }
