"""LayerScale: pre-norm with learned scales of the sublayer's features, initially close to zero."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.blocks.residual.residual import PreNormResidual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class LayerScaleResidual(PreNormResidual):
    """LayerScale: `x + λ f(norm(x))`, with a learned scale λ for each of the D features.

    Args:
        initial_value: float. Initial value of λ.
        norm: a name in `NORMS`, or a norm layer to copy.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Seed of the stochastic depth.

    Example:

    >>> import numpy as np
    >>> residual = LayerScaleResidual(initial_value=0.5)
    >>> residual.build((None, None, 2))
    >>> residual.post(np.array([[[1.0, 3.0]]]), np.array([[[0.0, 2.0]]], "float32")).numpy().tolist()
    [[[1.0, 4.0]]]

    Reference: Touvron et al., Going deeper with Image Transformers (CaiT), arXiv 2103.17239, section 2. It initializes λ to
    0.1 in stacks of up to 18 blocks, to 1e-5 up to 24, and to 1e-6 above.
    """

    scale: keras.Variable

    def __init__(
        self,
        initial_value: float = 1e-5,
        norm: LayerLike = "layer_norm",
        stochastic_depth: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(norm, stochastic_depth, seed, **kwargs)
        self.initial_value = initial_value

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.scale = self.add_weight(
            name="scale", shape=(input_shape[-1],), initializer=keras.initializers.Constant(self.initial_value)
        )

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return x + ops.cast(self.scale, y.dtype) * y

    def get_config(self) -> Config:
        return {**super().get_config(), "initial_value": self.initial_value}
