"""The attention layers by name: what may stand as the mixer of a block. See `Mechanism` for what most variants are.

A layer of its own is here only where its projections are not those of `MultiHeadAttention`. It keeps that layer's call, and
has `supports`, `cache_is_rewindable`, `init_cache` and `output_dense`.
"""

from keras_transformer.attention.layers.branched_convolution import BranchedConvolution
from keras_transformer.attention.layers.dynamic_convolution import DynamicConvolution
from keras_transformer.attention.layers.gated_attention_unit import GatedAttentionUnit
from keras_transformer.attention.layers.lightweight_convolution import LightweightConvolution
from keras_transformer.attention.layers.long_short_range import LongShortRangeAttention
from keras_transformer.attention.layers.longformer import LongformerAttention
from keras_transformer.attention.layers.mixed_chunk_attention import MixedChunkAttention
from keras_transformer.attention.layers.segment_recurrent import SegmentRecurrentAttention
from keras_transformer.attention.multi_head_attention import MultiHeadAttention

MIXERS = {
    "multi_head": MultiHeadAttention,
    "longformer": LongformerAttention,
    "gated_attention_unit": GatedAttentionUnit,
    "mixed_chunk": MixedChunkAttention,
    "lightweight_convolution": LightweightConvolution,
    "dynamic_convolution": DynamicConvolution,
    "long_short_range": LongShortRangeAttention,
    "branched_convolution": BranchedConvolution,
    "segment_recurrent": SegmentRecurrentAttention,
}
