"""Which keys a query sees, and how they are weighed."""

from keras_transformer.attention.local import LocalAttention
from keras_transformer.attention.maps import attention_maps
from keras_transformer.attention.masks import Visibility, length_mask, segment_mask
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms import MECHANISMS
from keras_transformer.attention.mixers import MIXERS
from keras_transformer.attention.multi_head_attention import MultiHeadAttention
from keras_transformer.attention.scoring import SCORINGS, Additive, Bilinear, Cosine, Dot, Location, ScaledDot
from keras_transformer.attention.softmax import SoftmaxAttention

__all__ = [
    "MECHANISMS",
    "MIXERS",
    "SCORINGS",
    "Additive",
    "Bilinear",
    "Cosine",
    "Dot",
    "LocalAttention",
    "Location",
    "Mechanism",
    "MultiHeadAttention",
    "ScaledDot",
    "SoftmaxAttention",
    "Visibility",
    "attention_maps",
    "length_mask",
    "segment_mask",
]
