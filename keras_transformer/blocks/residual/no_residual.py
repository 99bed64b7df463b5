"""A scheme without a residual connection."""

from __future__ import annotations

from typing import Unpack

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import LayerLike, LayerOptions, Tensor


@serializable
class NoResidual(Residual):
    """No residual connection: `f(norm(x))`, for a sublayer that includes its own, such as `feedforward.ISTA`.

    Such a sublayer cannot be dropped: `stochastic_depth` must be 0.

    Example:

    >>> import numpy as np
    >>> residual = NoResidual()
    >>> residual.post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]])).tolist()
    [[[0.0, 2.0]]]

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 2.4.
    """

    _norm_names = ("norm",)

    def __init__(self, norm: LayerLike = "layer_norm", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(norm, **kwargs)
        if self.stochastic_depth:
            raise ValueError(f"NoResidual takes no stochastic_depth. Received: {self.stochastic_depth}")

    def pre(self, x: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return self._normalize("norm", x, mask, training)

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return y
