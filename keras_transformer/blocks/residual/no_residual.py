"""A sublayer that takes the place of what it is given."""

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable


@serializable
class NoResidual(Residual):
    """`f(norm(x))`, for a sublayer that is itself a step from where it stands, as `feedforward.ISTA` is.

    No row can pass such a sublayer by: it takes no `stochastic_depth`.

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 2.4.
    """

    _norm_names = ("norm",)

    def __init__(self, norm="layer_norm", **kwargs):
        super().__init__(norm, **kwargs)
        if self.stochastic_depth:
            raise ValueError(f"NoResidual takes no stochastic_depth. Received: {self.stochastic_depth}")

    def pre(self, x, mask=None, training=None):
        return self._normalize("norm", x, mask, training)

    def post(self, x, y, mask=None, training=None):
        return y
