"""ReZero: every sublayer starts as nothing."""

from keras import ops

from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import serializable


@serializable
class ReZeroResidual(Residual):
    """`x + α f(x)`, with a learned number α that starts at 0: at first a stack of any depth hands its input on.

    Args:
        norm: taken as by other schemes, and not used: there is none.

    Reference: Bachlechner et al., ReZero is All You Need, arXiv 2003.04887, section 3.
    """

    needs_final_norm = False

    def build(self, input_shape):
        super().build(input_shape)
        self.scale = self.add_weight(name="scale", shape=(), initializer="zeros")

    def post(self, x, y, mask=None, training=None):
        return x + ops.cast(self.scale, y.dtype) * y
