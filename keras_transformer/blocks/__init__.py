"""A block is a residual scheme around a mixer, and a residual scheme around a feed-forward."""

from keras_transformer.blocks.decoder_block import DecoderBlock
from keras_transformer.blocks.encoder_block import EncoderBlock
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
    "DecoderBlock",
    "EncoderBlock",
    "PostNormResidual",
    "PreNormResidual",
    "Residual",
    "SandwichNormResidual",
    "SublayerNormResidual",
]
