"""A block is a residual scheme around a mixer, and a residual scheme around a feed-forward."""

from keras_transformer.blocks.branched_decoder_block import BranchedDecoderBlock
from keras_transformer.blocks.branched_encoder_block import BranchedEncoderBlock
from keras_transformer.blocks.chunked_cross_block import ChunkedCrossBlock
from keras_transformer.blocks.cross_decoder_block import CrossDecoderBlock
from keras_transformer.blocks.decoder_block import DecoderBlock
from keras_transformer.blocks.deep_norm import DeepNormResidual
from keras_transformer.blocks.encoder_block import EncoderBlock
from keras_transformer.blocks.layer_scale import LayerScaleResidual
from keras_transformer.blocks.memory_stack import MemoryStack
from keras_transformer.blocks.neighbour_block import NeighbourBlock
from keras_transformer.blocks.neighbour_encoder import NeighbourEncoder
from keras_transformer.blocks.no_residual import NoResidual
from keras_transformer.blocks.norms import NORMS
from keras_transformer.blocks.query_stream import QueryStream, TakeQueryStream
from keras_transformer.blocks.re_zero import ReZeroResidual
from keras_transformer.blocks.residual_schemes import RESIDUALS
from keras_transformer.blocks.residuals import (
    PostNormResidual,
    PreNormResidual,
    Residual,
    SandwichNormResidual,
    SublayerNormResidual,
)
from keras_transformer.blocks.reversible_block import ReversibleBlock
from keras_transformer.blocks.reversible_stack import ReversibleStack
from keras_transformer.blocks.sub_ln import SubLNResidual
from keras_transformer.blocks.two_streams import JoinStreams, OpenStreams, ResiDualResidual

__all__ = [
    "NORMS",
    "RESIDUALS",
    "ChunkedCrossBlock",
    "BranchedDecoderBlock",
    "BranchedEncoderBlock",
    "CrossDecoderBlock",
    "DecoderBlock",
    "DeepNormResidual",
    "EncoderBlock",
    "JoinStreams",
    "LayerScaleResidual",
    "MemoryStack",
    "NeighbourBlock",
    "NeighbourEncoder",
    "NoResidual",
    "OpenStreams",
    "PostNormResidual",
    "PreNormResidual",
    "QueryStream",
    "ReZeroResidual",
    "ResiDualResidual",
    "Residual",
    "ReversibleBlock",
    "ReversibleStack",
    "SandwichNormResidual",
    "SubLNResidual",
    "SublayerNormResidual",
    "TakeQueryStream",
]
