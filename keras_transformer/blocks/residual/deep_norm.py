"""DeepNorm: post-norm for stacks of hundreds of blocks."""

import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable

# The maps that DeepNorm starts small: those that make the values and the output of a sublayer. Queries, keys and gates only
# say how much of them there is.
_SCALED = {"value", "attention_output", "hidden", "output"}


@serializable
class DeepNormResidual(Residual):
    """`norm(α x + f(x))`, where the kernels of values and outputs in f start β times as large.

    α and β depend on the depth of the whole stack; `of_stack`, `of_encoder` and `of_decoder` know them, and are what
    `models.Encoder`, `models.Decoder` and `models.Transformer` take where they are told "deepnorm". With them the change of
    the model's output in a step of training is bounded, whatever the depth.

    Args:
        alpha: float > 0.
        beta: float > 0. For weights that this block builds; those of a layer that is built already stay as they are.
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy.

    Raises:
        ValueError: no `alpha` or `beta`, as where a block alone is told "deepnorm".

    Example:

    >>> residual = DeepNormResidual.of_stack(num_layers=128)
    >>> residual.alpha, round(residual.beta, 4)
    (4.0, 0.1768)

    Reference: Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, arXiv 2203.00555, figure 2 and section 4. In gated
    feed-forwards, which the paper does not have, the gate's kernel starts as ever.
    """

    _norm_names = ("norm",)
    needs_final_norm = False

    def __init__(self, alpha=None, beta=None, norm="layer_norm", **kwargs):
        super().__init__(norm=norm, **kwargs)
        if not (alpha and beta and alpha > 0 and beta > 0):
            raise ValueError(
                "DeepNorm depends on the depth of its stack: give DeepNormResidual.of_stack(num_layers), or alpha and beta "
                f"above 0. Received: alpha={alpha}, beta={beta}"
            )
        self.alpha = alpha
        self.beta = beta

    @classmethod
    def of_stack(cls, num_layers, norm="layer_norm"):
        """For an encoder alone, or a decoder alone, of `num_layers` blocks."""
        return cls((2 * num_layers) ** 0.25, (8 * num_layers) ** -0.25, norm=norm)

    @classmethod
    def of_encoder(cls, num_layers, num_decoder_layers, norm="layer_norm"):
        """For the encoder of an encoder-decoder."""
        depth = (num_layers**4 * num_decoder_layers) ** (1 / 16)
        return cls(0.81 * depth, 0.87 / depth, norm=norm)

    @classmethod
    def of_decoder(cls, num_layers, norm="layer_norm"):
        """For the decoder of an encoder-decoder: `num_layers` are its own."""
        return cls((3 * num_layers) ** 0.25, (12 * num_layers) ** -0.25, norm=norm)

    def post(self, x, y, mask=None, training=None):
        return self._normalize("norm", self.alpha * x + y, mask, training)

    def initialize_sublayer(self, sublayer):
        scale_kernels(sublayer, self.beta)

    def get_config(self):
        return {**super().get_config(), "alpha": self.alpha, "beta": self.beta}


def scale_kernels(sublayer, factor):
    """Multiplies what the kernels of values and outputs in a sublayer start with, and leaves those of queries and keys."""
    for weight in sublayer.trainable_weights:
        names = {part.removesuffix("_kernel") for part in weight.path.split("/")[-2:]}
        if weight.name.endswith("kernel") and names & _SCALED:
            _scale(weight, factor)


def _scale(weight, factor):
    """Multiplies the value that a weight starts with, or will start with where Keras puts that off."""
    if not keras_private.has_value(weight):
        initializer = keras_private.initializer(weight)
        keras_private.set_initializer(weight, lambda *args, **options: initializer(*args, **options) * factor)
    else:  # By way of numpy: fails, as it should, where it would become a part of a graph.
        weight.assign(np.asarray(weight) * factor)
