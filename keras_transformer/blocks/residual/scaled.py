"""Pre-norm with a fixed factor of what each sublayer adds."""

from __future__ import annotations

from typing import Unpack

from keras_transformer.blocks.residual.residual import PreNormResidual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Tensor


@serializable
class ScaledResidual(PreNormResidual):
    """Pre-norm with a fixed factor: `x + m f(norm(x))`. A stack of such blocks ends with a norm.

    Args:
        scale: float. m. Default 1.
        norm: a name in `NORMS`, or a norm layer to copy.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Seed of the stochastic depth.

    Example:

    >>> import numpy as np
    >>> ScaledResidual(0.25).post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]])).tolist()
    [[[1.0, 3.5]]]

    Reference: Yang et al., Tensor Programs V, arXiv 2203.03466, whose depth-wise form (arXiv 2310.02244) has a factor of
    `1 / √L`; Granite's code has any factor, as `residual_multiplier`.
    """

    def __init__(
        self,
        scale: float = 1.0,
        norm: LayerLike = "layer_norm",
        stochastic_depth: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(norm, stochastic_depth, seed, **kwargs)
        self.scale = scale

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x + self.scale * y

    def get_config(self) -> Config:
        return {**super().get_config(), "scale": self.scale}
