"""Transformer blocks: residual schemes around a mixer and a feed-forward network."""

from keras_transformer.blocks.decoders.branched_decoder_block import BranchedDecoderBlock
from keras_transformer.blocks.decoders.cross_decoder_block import CrossDecoderBlock
from keras_transformer.blocks.decoders.decoder_block import DecoderBlock
from keras_transformer.blocks.decoders.deformable_decoder_block import DeformableDecoderBlock
from keras_transformer.blocks.decoders.parallel_decoder_block import ParallelDecoderBlock
from keras_transformer.blocks.decoders.prefix_decoder_block import PrefixDecoderBlock
from keras_transformer.blocks.decoders.query_decoder_block import QueryDecoderBlock
from keras_transformer.blocks.decoders.value_residual_block import ValueResidualBlock
from keras_transformer.blocks.encoders.branched_encoder_block import BranchedEncoderBlock
from keras_transformer.blocks.encoders.conformer_block import ConformerBlock
from keras_transformer.blocks.encoders.encoder_block import EncoderBlock
from keras_transformer.blocks.encoders.ngram_induced_encoding import NGramInducedEncoding
from keras_transformer.blocks.encoders.streaming_encoder_block import StreamingEncoderBlock
from keras_transformer.blocks.memory.memory_stack import MemoryStack
from keras_transformer.blocks.residual import RESIDUALS
from keras_transformer.blocks.residual.ada_ln_zero import AdaLNZeroResidual
from keras_transformer.blocks.residual.deep_norm import DeepNormResidual
from keras_transformer.blocks.residual.gated import GatedResidual
from keras_transformer.blocks.residual.layer_scale import LayerScaleResidual
from keras_transformer.blocks.residual.no_residual import NoResidual
from keras_transformer.blocks.residual.re_zero import ReZeroResidual
from keras_transformer.blocks.residual.resi_dual import JoinStreams, OpenStreams, ResiDualResidual
from keras_transformer.blocks.residual.residual import (
    NormalizedSkipResidual,
    PostNormResidual,
    PreNormResidual,
    Residual,
    SandwichNormResidual,
    SublayerNormResidual,
)
from keras_transformer.blocks.residual.scaled import ScaledResidual
from keras_transformer.blocks.residual.sub_ln import SubLNResidual
from keras_transformer.blocks.retrieval.chunked_cross_block import ChunkedCrossBlock
from keras_transformer.blocks.retrieval.neighbor_block import NeighborBlock
from keras_transformer.blocks.retrieval.neighbor_encoder import NeighborEncoder
from keras_transformer.blocks.reversible.reversible_block import ReversibleBlock
from keras_transformer.blocks.reversible.reversible_stack import ReversibleStack
from keras_transformer.blocks.streams.alt_up import AltUp, StreamExpansion, StreamReduction
from keras_transformer.blocks.streams.alt_up_block import AltUpBlock, AltUpKeyValueBlock
from keras_transformer.blocks.streams.joint_block import JointBlock
from keras_transformer.blocks.streams.query_stream import QueryStream, TakeQueryStream
from keras_transformer.blocks.streams.single_stream_block import SingleStreamBlock
from keras_transformer.blocks.streams.two_way_block import TwoWayBlock
from keras_transformer.layers.norms import NORMS

__all__ = [
    "NORMS",
    "RESIDUALS",
    "AdaLNZeroResidual",
    "AltUp",
    "AltUpBlock",
    "AltUpKeyValueBlock",
    "ChunkedCrossBlock",
    "BranchedDecoderBlock",
    "BranchedEncoderBlock",
    "ConformerBlock",
    "CrossDecoderBlock",
    "DecoderBlock",
    "DeepNormResidual",
    "DeformableDecoderBlock",
    "EncoderBlock",
    "GatedResidual",
    "JoinStreams",
    "JointBlock",
    "LayerScaleResidual",
    "MemoryStack",
    "NGramInducedEncoding",
    "NeighborBlock",
    "NeighborEncoder",
    "NoResidual",
    "NormalizedSkipResidual",
    "OpenStreams",
    "ParallelDecoderBlock",
    "PostNormResidual",
    "PreNormResidual",
    "QueryDecoderBlock",
    "PrefixDecoderBlock",
    "QueryStream",
    "ReZeroResidual",
    "ResiDualResidual",
    "Residual",
    "ReversibleBlock",
    "ReversibleStack",
    "SingleStreamBlock",
    "SandwichNormResidual",
    "ScaledResidual",
    "SubLNResidual",
    "StreamExpansion",
    "StreamReduction",
    "SublayerNormResidual",
    "StreamingEncoderBlock",
    "TakeQueryStream",
    "TwoWayBlock",
    "ValueResidualBlock",
]
