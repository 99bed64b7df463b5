"""LayerScale: pre-norm whose sublayers are scaled by feature, and start near nothing."""

import keras
from keras import ops

from keras_transformer.blocks.residual.residual import PreNormResidual
from keras_transformer.utils.serialization import serializable


@serializable
class LayerScaleResidual(PreNormResidual):
    """`x + λ f(norm(x))`, with a learned number for each of the D features.

    Args:
        initial_value: float. What each of λ starts as.
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Of the rows that are left out.

    Reference: Touvron et al., Going deeper with Image Transformers (CaiT), arXiv 2103.17239, section 2. It starts λ at 0.1
    in stacks of up to 18 blocks, at 1e-5 in those of up to 24, and at 1e-6 in deeper ones.
    """

    def __init__(self, initial_value=1e-5, norm="layer_norm", stochastic_depth=0.0, seed=None, **kwargs):
        super().__init__(norm, stochastic_depth, seed, **kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        super().build(input_shape)
        self.scale = self.add_weight(
            name="scale", shape=(input_shape[-1],), initializer=keras.initializers.Constant(self.initial_value)
        )

    def post(self, x, y, mask=None, training=None):
        return x + ops.cast(self.scale, y.dtype) * y

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}
