"""adaLN-Zero: a residual scheme whose norm and output depend on a condition."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.layers.modulation import (
    Modulation,
    condition_projection,
    norm_without_weights,
    project_condition,
)
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import resolve, serializable
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class AdaLNZeroResidual(Residual):
    """adaLN-Zero: `x + α(c) f(norm(x) (1 + γ(c)) + β(c))`, with scale, shift and gate from a condition c.

    All three are linear in SiLU(c) and initially zero, so that a block starts as the identity. The block takes the condition
    as a call argument: see `EncoderBlock` and `DecoderBlock`.

    Args:
        norm: a name in `NORMS`, or a norm layer to copy. Its own scale and offset are left out, except those of RMS norms.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Seed of the stochastic depth.
        condition_dim: int >= 1, or None. Width C of the condition. Default None: the width of the tokens.

    Raises:
        ValueError: `condition_dim` below 1; in a call, no condition.

    Example:

    >>> import numpy as np
    >>> residual = AdaLNZeroResidual()
    >>> residual.build((None, None, 2))
    >>> x, y, condition = np.array([[[1.0, 3.0]]]), np.array([[[5.0, 2.0]]]), np.array([[0.5, 1.0]])
    >>> residual.post(x, y, condition=condition).numpy().tolist()
    [[[1.0, 3.0]]]

    Reference: Peebles and Xie, Scalable Diffusion Models with Transformers, arXiv 2212.09748, section 3.2 and figure 3.
    There one projection gives the six vectors of a block; here each scheme of the block projects its own three.
    """

    _norm_names = ("norm",)
    takes_condition = True

    def __init__(
        self,
        norm: LayerLike = "layer_norm",
        stochastic_depth: float = 0.0,
        seed: int | None = None,
        condition_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        super().__init__(norm_without_weights(norm), stochastic_depth, seed, **kwargs)
        self.condition_dim = condition_dim
        self._modulation = Modulation(condition_dim, name="modulation", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self._modulation.build(input_shape)
        self._gate = condition_projection(input_shape[-1], "gate", self.dtype_policy)
        self._gate.build((None, self.condition_dim or input_shape[-1]))

    def pre(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        condition: Tensor | None = None,
    ) -> Tensor:
        return self._modulation(self._normalize("norm", x, mask, training), self._checked(condition))

    def post(
        self,
        x: Tensor,
        y: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        condition: Tensor | None = None,
    ) -> Tensor:
        return x + project_condition(self._gate, self._checked(condition)) * y

    def _checked(self, condition):
        if condition is None:
            raise ValueError(
                f"{self.name}: AdaLNZeroResidual needs a condition, which EncoderBlock and DecoderBlock take as `condition`."
            )
        return condition

    def get_config(self) -> Config:
        return {**super().get_config(), "condition_dim": self.condition_dim}
