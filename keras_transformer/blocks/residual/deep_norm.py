"""DeepNorm: post-norm for stacks of hundreds of blocks."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Tensor

# Projections whose initial kernels DeepNorm scales: those of values and outputs. Queries, keys and gates are not scaled.
_SCALED = {"value", "attention_output", "hidden", "output"}


@serializable
class DeepNormResidual(Residual):
    """DeepNorm: `norm(α x + f(x))`, with the initial kernels of values and outputs in f scaled by β.

    α and β depend on the depth of the whole stack and bound the update of the model's output in a training step at any
    depth. `of_stack`, `of_encoder` and `of_decoder` compute them; `models.Encoder`, `models.Decoder` and
    `models.Transformer` use these for `residual="deepnorm"`.

    Args:
        alpha: float > 0.
        beta: float > 0. Scales the weights that the block builds; layers that are already built keep theirs.
        norm: a name in `NORMS`, or a norm layer to copy.

    Raises:
        ValueError: no `alpha` or `beta`, as with `residual="deepnorm"` in a single block.

    Example:

    >>> residual = DeepNormResidual.of_stack(num_layers=128)
    >>> residual.alpha, round(residual.beta, 4)
    (4.0, 0.1768)

    Reference: Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, arXiv 2203.00555, figure 2 and section 4. The
    paper has no gated feed-forwards; here the gate's kernel is not scaled.
    """

    _norm_names = ("norm",)
    needs_final_norm = False

    def __init__(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        norm: LayerLike = "layer_norm",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(norm=norm, **kwargs)
        if not (alpha and beta and alpha > 0 and beta > 0):
            raise ValueError(
                "DeepNorm depends on the depth of its stack: use DeepNormResidual.of_stack(num_layers), or set alpha and "
                f"beta above 0. Received: alpha={alpha}, beta={beta}"
            )
        self.alpha = alpha
        self.beta = beta

    @classmethod
    def of_stack(cls, num_layers: int, norm: LayerLike = "layer_norm") -> DeepNormResidual:
        """Returns the scheme of an encoder-only or decoder-only stack of `num_layers` blocks."""
        return cls((2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25, norm=norm)

    @classmethod
    def of_encoder(cls, num_layers: int, num_decoder_layers: int, norm: LayerLike = "layer_norm") -> DeepNormResidual:
        """Returns the scheme of the encoder of an encoder-decoder."""
        depth = (num_layers**4 * num_decoder_layers) ** (1 / 16)
        return cls(0.81 * depth, 0.87 / depth, norm=norm)

    @classmethod
    def of_decoder(cls, num_layers: int, norm: LayerLike = "layer_norm") -> DeepNormResidual:
        """Returns the scheme of the decoder, of `num_layers` blocks, of an encoder-decoder."""
        return cls((3 * num_layers) ** 0.25, (12 * num_layers) ** -0.25, norm=norm)

    def post(self, x: Tensor, y: Tensor, mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        return self._normalize("norm", self.alpha * x + y, mask, training)

    def initialize_sublayer(self, sublayer: keras.layers.Layer) -> None:
        scale_kernels(sublayer, self.beta)

    def get_config(self) -> Config:
        return {**super().get_config(), "alpha": self.alpha, "beta": self.beta}


def scale_kernels(sublayer: keras.layers.Layer, factor: float) -> None:
    """Scales the initial kernels of values and outputs in a sublayer; those of queries and keys stay as they are."""
    for weight in sublayer.trainable_weights:
        names = {part.removesuffix("_kernel") for part in weight.path.split("/")[-2:]}
        if weight.name.endswith("kernel") and names & _SCALED:
            _scale(weight, factor)


def _scale(weight, factor):
    """Scales the initial value of a weight, or its initializer if Keras has not created the value yet."""
    if not keras_private.has_value(weight):
        initializer = keras_private.initializer(weight)
        keras_private.set_initializer(weight, lambda *args, **options: initializer(*args, **options) * factor)
    else:  # By way of numpy, which fails in a graph, where the assignment would be repeated at every call.
        weight.assign(np.asarray(weight) * factor)
