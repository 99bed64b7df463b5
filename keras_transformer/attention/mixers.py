"""The attention layers by name: what may stand as the mixer of a block. See `Mechanism` for what most variants are.

A layer of its own is here only where its projections are not those of `MultiHeadAttention`. It keeps that layer's call, and
has `honours`, `rewinds`, `init_cache` and `output_dense`.
"""

from keras_transformer.attention.multi_head_attention import MultiHeadAttention

MIXERS = {
    "multi_head": MultiHeadAttention,
}
