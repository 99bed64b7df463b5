"""Token mixers by name: `MultiHeadAttention`, and layers whose projections differ from its.

Most attention variants are mechanisms of `MultiHeadAttention`: see `Mechanism`. `Mixer` is the interface of all mixers.
"""

from keras_transformer.attention.layers.convolutional.branched_convolution import BranchedConvolution
from keras_transformer.attention.layers.convolutional.dynamic_convolution import DynamicConvolution
from keras_transformer.attention.layers.convolutional.lightweight_convolution import LightweightConvolution
from keras_transformer.attention.layers.convolutional.long_short_range import LongShortRangeAttention
from keras_transformer.attention.layers.disentangled import DisentangledAttention
from keras_transformer.attention.layers.gated.gated_attention_unit import GatedAttentionUnit
from keras_transformer.attention.layers.gated.mixed_chunk_attention import MixedChunkAttention
from keras_transformer.attention.layers.longformer import LongformerAttention
from keras_transformer.attention.layers.multi_head_latent import MultiHeadLatentAttention
from keras_transformer.attention.layers.native_sparse import NativeSparseAttention
from keras_transformer.attention.layers.segment_recurrent import SegmentRecurrentAttention
from keras_transformer.attention.mixer import Mixer
from keras_transformer.attention.multi_head.multi_head_attention import MultiHeadAttention

MIXERS: dict[str, type[Mixer]] = {
    "multi_head": MultiHeadAttention,
    "multi_head_latent": MultiHeadLatentAttention,
    "native_sparse": NativeSparseAttention,
    "longformer": LongformerAttention,
    "gated_attention_unit": GatedAttentionUnit,
    "mixed_chunk": MixedChunkAttention,
    "lightweight_convolution": LightweightConvolution,
    "dynamic_convolution": DynamicConvolution,
    "long_short_range": LongShortRangeAttention,
    "branched_convolution": BranchedConvolution,
    "segment_recurrent": SegmentRecurrentAttention,
    "disentangled": DisentangledAttention,
}
