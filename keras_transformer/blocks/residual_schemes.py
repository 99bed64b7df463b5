"""The residual schemes by name."""

from keras_transformer.blocks.deep_norm import DeepNormResidual
from keras_transformer.blocks.layer_scale import LayerScaleResidual
from keras_transformer.blocks.no_residual import NoResidual
from keras_transformer.blocks.re_zero import ReZeroResidual
from keras_transformer.blocks.residuals import (
    PostNormResidual,
    PreNormResidual,
    Residual,
    SandwichNormResidual,
    SublayerNormResidual,
)
from keras_transformer.blocks.two_streams import ResiDualResidual
from keras_transformer.saving import clone, resolve

RESIDUALS = {
    "post": PostNormResidual,
    "pre": PreNormResidual,
    "sandwich": SandwichNormResidual,
    "sublayer": SublayerNormResidual,
    "deepnorm": DeepNormResidual,
    "rezero": ReZeroResidual,
    "residual": ResiDualResidual,
    "layer_scale": LayerScaleResidual,
    "none": NoResidual,
}


def make_residual(identifier, norm, name, dtype):
    """A scheme of its own for one place of a block: by name with `norm`, or a copy of an instance.

    Raises:
        ValueError: unknown name, or not a residual scheme.
    """
    return clone(resolve(identifier, RESIDUALS, Residual, norm=norm), name=name, dtype=dtype)
