"""A residual scheme with learned gates for both of its terms."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor


@serializable
class GatedResidual(Residual):
    """Gated residual: `norm(g ⊙ x + g' ⊙ f(x))` with the gates `[g; g'] = σ(W [x; f(x)] + b)`, which are 1/2 at first.

    Args:
        norm: a name in `NORMS`, or a norm layer to copy.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Seed of the stochastic depth.

    Example:

    >>> import numpy as np
    >>> residual = GatedResidual()
    >>> residual.build((None, None, 2))
    >>> residual.post(np.array([[[1.0, 3.0]]], "float32"), np.array([[[0.0, 2.0]]], "float32")).numpy().round(2).tolist()
    [[[-1.0, 1.0]]]

    Reference: Peng et al., D-FINE, arXiv 2410.13842, section 4.3 (target gating layer), as in its published code.
    """

    _norm_names = ("norm",)
    needs_final_norm = False

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        width = input_shape[-1]
        options: dict[str, object] = {"kernel_initializer": "zeros", "dtype": self.dtype_policy, "name": "gate"}
        self._gate = keras.layers.Dense(2 * width, "sigmoid", **options)
        self._gate.build((*input_shape[:-1], 2 * width))

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        gates = self._gate(ops.concatenate([x, y], axis=-1))
        width = x.shape[-1]
        return self._normalize("norm", gates[..., :width] * x + gates[..., width:] * y, mask, training)
