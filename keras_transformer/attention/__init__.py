"""Attention layers, the mechanisms inside them, masks and caches."""

from keras_transformer.attention.kernel_features.feature_maps import FEATURE_MAPS, FeatureMap
from keras_transformer.attention.kernel_features.random_features import RandomFeatures
from keras_transformer.attention.layers import MIXERS
from keras_transformer.attention.layers.convolutional.branched_convolution import BranchedConvolution
from keras_transformer.attention.layers.convolutional.dynamic_convolution import DynamicConvolution
from keras_transformer.attention.layers.convolutional.kernel_pooling import KernelPooling
from keras_transformer.attention.layers.convolutional.kernels import KERNELS
from keras_transformer.attention.layers.convolutional.lightweight_convolution import LightweightConvolution
from keras_transformer.attention.layers.convolutional.long_short_range import LongShortRangeAttention
from keras_transformer.attention.layers.cross.chunked_cross_attention import ChunkedCrossAttention
from keras_transformer.attention.layers.cross.cross_decoder_attention import CrossDecoderAttention
from keras_transformer.attention.layers.cross.joint_attention import JointAttention
from keras_transformer.attention.layers.cross.shared_key_value import SharedKeyValue
from keras_transformer.attention.layers.disentangled import DisentangledAttention
from keras_transformer.attention.layers.gated.gated_attention_unit import GatedAttentionUnit
from keras_transformer.attention.layers.gated.mixed_chunk_attention import MixedChunkAttention
from keras_transformer.attention.layers.longformer import LongformerAttention
from keras_transformer.attention.layers.multi_head_latent import MultiHeadLatentAttention
from keras_transformer.attention.layers.native_sparse import NativeSparseAttention
from keras_transformer.attention.layers.positioned_attention import PositionedAttention
from keras_transformer.attention.layers.segment_recurrent import SegmentRecurrentAttention
from keras_transformer.attention.layers.spatial.deformable import MultiScaleDeformableAttention
from keras_transformer.attention.layers.spatial.neighbor_attention import attend_to_neighbors
from keras_transformer.attention.layers.spatial.shifted_window_attention import ShiftedWindowAttention
from keras_transformer.attention.layers.spatial.spatial_reduction_attention import SpatialReductionAttention
from keras_transformer.attention.layers.spatial.window_attention import WindowAttention
from keras_transformer.attention.layers.two_stream import TwoStreamAttention
from keras_transformer.attention.maps import attention_maps
from keras_transformer.attention.masks import Visibility, length_mask, segment_mask
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms import MECHANISMS
from keras_transformer.attention.mechanisms.blockwise import BlockwiseAttention
from keras_transformer.attention.mechanisms.chunked import ChunkedAttention
from keras_transformer.attention.mechanisms.clusters.clustered import ClusteredAttention
from keras_transformer.attention.mechanisms.clusters.improved_clustered import ImprovedClusteredAttention
from keras_transformer.attention.mechanisms.clusters.lsh import LSHAttention
from keras_transformer.attention.mechanisms.differential import DifferentialAttention
from keras_transformer.attention.mechanisms.infini import InfiniAttention
from keras_transformer.attention.mechanisms.linear import LinearAttention
from keras_transformer.attention.mechanisms.linformer import LinformerAttention
from keras_transformer.attention.mechanisms.performer import PerformerAttention
from keras_transformer.attention.mechanisms.retrieval import RetrievalAttention
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mechanisms.sparse.bigbird import BigBirdAttention
from keras_transformer.attention.mechanisms.sparse.block_sparse import BlockSparseAttention
from keras_transformer.attention.mechanisms.sparse.dilated import DilatedAttention
from keras_transformer.attention.mechanisms.sparse.local import LocalAttention
from keras_transformer.attention.mechanisms.sparse.longnet import LongNetAttention
from keras_transformer.attention.mechanisms.sparse.sparse_fixed import FixedSparseAttention
from keras_transformer.attention.mechanisms.sparse.sparse_strided import StridedSparseAttention
from keras_transformer.attention.mechanisms.sparse.streaming import StreamingAttention
from keras_transformer.attention.mechanisms.subspace import SubspaceAttention
from keras_transformer.attention.multi_head.multi_head_attention import MultiHeadAttention
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

__all__ = [
    "FEATURE_MAPS",
    "JointAttention",
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
    "DifferentialAttention",
    "DilatedAttention",
    "DisentangledAttention",
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
    "MultiHeadLatentAttention",
    "NativeSparseAttention",
    "MultiScaleDeformableAttention",
    "PerformerAttention",
    "PositionedAttention",
    "RandomFeatures",
    "RetrievalAttention",
    "ScaledDot",
    "SegmentRecurrentAttention",
    "SharedKeyValue",
    "ShiftedWindowAttention",
    "SoftCappedDot",
    "SoftmaxAttention",
    "SpatialReductionAttention",
    "StreamingAttention",
    "StridedSparseAttention",
    "SubspaceAttention",
    "TwoStreamAttention",
    "Visibility",
    "WindowAttention",
    "attend_to_neighbors",
    "attention_maps",
    "length_mask",
    "segment_mask",
]
