"""Which keys a query sees, and how they are weighed."""

from keras_transformer.attention.bigbird import BigBirdAttention
from keras_transformer.attention.block_sparse import BlockSparseAttention
from keras_transformer.attention.blockwise import BlockwiseAttention
from keras_transformer.attention.branched_convolution import BranchedConvolution
from keras_transformer.attention.chunked import ChunkedAttention
from keras_transformer.attention.chunked_cross_attention import ChunkedCrossAttention
from keras_transformer.attention.clustered import ClusteredAttention, ImprovedClusteredAttention
from keras_transformer.attention.cross_decoder_attention import CrossDecoderAttention
from keras_transformer.attention.dilated import DilatedAttention
from keras_transformer.attention.dynamic_convolution import DynamicConvolution
from keras_transformer.attention.feature_maps import FEATURE_MAPS, FeatureMap
from keras_transformer.attention.flash import MixedChunkAttention
from keras_transformer.attention.gated_attention_unit import GatedAttentionUnit
from keras_transformer.attention.infini import InfiniAttention
from keras_transformer.attention.kernel_pooling import KernelPooling
from keras_transformer.attention.kernels import KERNELS
from keras_transformer.attention.lightweight import LightweightConvolution
from keras_transformer.attention.linear import LinearAttention
from keras_transformer.attention.linformer import LinformerAttention
from keras_transformer.attention.local import LocalAttention
from keras_transformer.attention.long_short_range import LongShortRangeAttention
from keras_transformer.attention.longformer import LongformerAttention
from keras_transformer.attention.longnet import LongNetAttention
from keras_transformer.attention.lsh import LSHAttention
from keras_transformer.attention.maps import attention_maps
from keras_transformer.attention.masks import Visibility, length_mask, segment_mask
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms import MECHANISMS
from keras_transformer.attention.mixers import MIXERS
from keras_transformer.attention.multi_head_attention import MultiHeadAttention
from keras_transformer.attention.nearest_neighbours import NearestNeighbours, attend_to_neighbours
from keras_transformer.attention.performer import PerformerAttention
from keras_transformer.attention.random_features import RandomFeatures
from keras_transformer.attention.retrieval import RetrievalAttention
from keras_transformer.attention.scoring import (
    SCORINGS,
    Additive,
    Bilinear,
    Cosine,
    Dot,
    Gaussian,
    Location,
    ScaledDot,
    SoftCappedDot,
)
from keras_transformer.attention.segment_recurrent import SegmentRecurrentAttention
from keras_transformer.attention.shared_key_value import SharedKeyValue
from keras_transformer.attention.shifted_windows import ShiftedWindowAttention
from keras_transformer.attention.softmax import SoftmaxAttention
from keras_transformer.attention.sparse import StridedSparseAttention
from keras_transformer.attention.sparse_fixed import FixedSparseAttention
from keras_transformer.attention.subspace_attention import SubspaceAttention
from keras_transformer.attention.two_stream import TwoStreamAttention

__all__ = [
    "FEATURE_MAPS",
    "KERNELS",
    "MECHANISMS",
    "MIXERS",
    "SCORINGS",
    "Additive",
    "BigBirdAttention",
    "Bilinear",
    "BlockSparseAttention",
    "BlockwiseAttention",
    "ChunkedAttention",
    "BranchedConvolution",
    "ChunkedCrossAttention",
    "ClusteredAttention",
    "Cosine",
    "CrossDecoderAttention",
    "DilatedAttention",
    "Dot",
    "DynamicConvolution",
    "FeatureMap",
    "FixedSparseAttention",
    "GatedAttentionUnit",
    "Gaussian",
    "ImprovedClusteredAttention",
    "InfiniAttention",
    "KernelPooling",
    "LSHAttention",
    "LightweightConvolution",
    "LinearAttention",
    "LinformerAttention",
    "LocalAttention",
    "Location",
    "LongNetAttention",
    "LongShortRangeAttention",
    "LongformerAttention",
    "Mechanism",
    "MixedChunkAttention",
    "MultiHeadAttention",
    "NearestNeighbours",
    "PerformerAttention",
    "RandomFeatures",
    "RetrievalAttention",
    "ScaledDot",
    "SegmentRecurrentAttention",
    "SharedKeyValue",
    "ShiftedWindowAttention",
    "SoftCappedDot",
    "SoftmaxAttention",
    "StridedSparseAttention",
    "SubspaceAttention",
    "TwoStreamAttention",
    "Visibility",
    "attend_to_neighbours",
    "attention_maps",
    "length_mask",
    "segment_mask",
]
