"""A block is a residual scheme around a mixer, and a residual scheme around a feed-forward."""

from keras_transformer.blocks.cross_decoder_block import CrossDecoderBlock
from keras_transformer.blocks.decoder_block import DecoderBlock
from keras_transformer.blocks.encoder_block import EncoderBlock
from keras_transformer.blocks.memory_stack import MemoryStack
from keras_transformer.blocks.norms import NORMS
from keras_transformer.blocks.residuals import (
    RESIDUALS,
    PostNormResidual,
    PreNormResidual,
    Residual,
    SandwichNormResidual,
    SublayerNormResidual,
)

__all__ = [
    "NORMS",
    "RESIDUALS",
    "CrossDecoderBlock",
    "DecoderBlock",
    "EncoderBlock",
    "MemoryStack",
    "PostNormResidual",
    "PreNormResidual",
    "Residual",
    "SandwichNormResidual",
    "SublayerNormResidual",
]
