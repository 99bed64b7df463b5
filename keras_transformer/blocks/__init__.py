"""A block is a residual scheme around a mixer, and a residual scheme around a feed-forward."""

from keras_transformer.blocks.cross_decoder_block import CrossDecoderBlock
from keras_transformer.blocks.decoder_block import DecoderBlock
from keras_transformer.blocks.deep_norm import DeepNormResidual
from keras_transformer.blocks.encoder_block import EncoderBlock
from keras_transformer.blocks.layer_scale import LayerScaleResidual
from keras_transformer.blocks.memory_stack import MemoryStack
from keras_transformer.blocks.norms import NORMS
from keras_transformer.blocks.re_zero import ReZeroResidual
from keras_transformer.blocks.residual_schemes import RESIDUALS
from keras_transformer.blocks.residuals import (
    PostNormResidual,
    PreNormResidual,
    Residual,
    SandwichNormResidual,
    SublayerNormResidual,
)
from keras_transformer.blocks.two_streams import JoinStreams, OpenStreams, ResiDualResidual

__all__ = [
    "NORMS",
    "RESIDUALS",
    "CrossDecoderBlock",
    "DecoderBlock",
    "DeepNormResidual",
    "EncoderBlock",
    "JoinStreams",
    "LayerScaleResidual",
    "MemoryStack",
    "OpenStreams",
    "PostNormResidual",
    "PreNormResidual",
    "ReZeroResidual",
    "ResiDualResidual",
    "Residual",
    "SandwichNormResidual",
    "SublayerNormResidual",
]
