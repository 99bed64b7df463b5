"""Mechanisms and mixers with suitable arguments for a length, for the benchmarks of long sequences."""

import inspect
import math

import keras
import numpy as np

from keras_transformer.attention import MECHANISMS, MIXERS, MultiHeadAttention
from keras_transformer.recurrence import RECURRENCES

# Mechanisms, which take projected tensors, and mixers, which have projections of their own.
NAMES = [*MECHANISMS, *(name for name in MIXERS if name != "multi_head")]
RECURRENT = [name for name in RECURRENCES if name != "channel_mixing"]


def arguments(name, length, window):
    """Returns constructor arguments of a mechanism or mixer for a length, without those of heads.

    Args:
        name: str in `NAMES`.
        length: int. Maximum number of tokens.
        window: int, a multiple of 4. Width of local patterns, both sides together.
    """
    root = 2 ** round(math.log2(math.sqrt(length)))
    block = max(1, window // 4)
    usual = {"window": window // 2, "attention_window": window, "num_global_tokens": 1}
    usual |= {"group_size": window, "chunk_length": max(1, window // 2)}
    special = {
        "dilated": {"window": block, "dilation": 4},
        "sparse_strided": {"stride": root},
        "sparse_fixed": {"block_size": root, "summary_size": max(1, root // 16)},
        "block_sparse": {"layout": _checkered(length, block), "block_size": block},
        "bigbird": {"block_size": block},
        "longnet": {"segment_lengths": (window, 4 * window), "dilation_rates": (1, 4)},
        "lsh": {"num_buckets": max(2, 2 * length // block), "chunk_length": block, "num_rounds": 2},
        "clustered": {"num_clusters": window // 2},
        "improved_clustered": {"num_clusters": window // 2, "top_k": block},
        "retrieval": {"top_k": block},
        "infini": {"segment_length": window},
        "multi_head_latent": {"latent_dim": max(4, window // 2), "rotary_dim": 4},
        "native_sparse": {
            "compression_length": max(1, block // 2),
            "compression_stride": max(1, block // 4),
            "block_size": block,
            "num_blocks": 4,
            "window": window // 2,
        },
        "segment_recurrent": {"segment_length": max(1, window // 2), "memory_length": max(1, window // 2)},
        "linformer": {"max_sequence_length": length, "projected_length": window},
    }
    known = inspect.signature(MECHANISMS.get(name) or MIXERS[name]).parameters
    return special.get(name) or {argument: value for argument, value in usual.items() if argument in known}


def _checkered(length, block_size):
    """Returns a block layout: each block attends to itself, the previous one and the first."""
    count = -(-length // block_size)
    rows, columns = np.indices((count, count))
    return (rows == columns) | (rows == columns + 1) | (columns == 0)


def mixer(name, length, num_heads, key_dim, window=128):
    """Returns a layer called as self-attention, `layer(x, x)`, or a recurrence, `layer(x)`."""
    if name in RECURRENCES:
        return _recurrence(name, num_heads, key_dim)
    options = arguments(name, length, window)
    if name in MECHANISMS:
        return MultiHeadAttention(num_heads, key_dim, mechanism=MECHANISMS[name](**options))
    if name == "long_short_range":
        # Half of the width per branch.
        near = MIXERS["lightweight_convolution"](num_heads=num_heads, kernel_size=7)
        return MIXERS[name](MultiHeadAttention(num_heads, max(1, key_dim // 2)), near)
    if name == "branched_convolution":
        # The branches in the decoder of the Evolved Transformer.
        width = num_heads * key_dim
        sizes = {"wide": (2 * width, 11, "relu"), "narrow": (max(1, width // 2), 7), "output": (width, 7)}
        return MIXERS[name](**{part: separable_convolution(*size) for part, size in sizes.items()})
    cls = MIXERS[name]
    known = inspect.signature(cls).parameters
    measures = {"num_heads": num_heads, "key_dim": key_dim}
    return cls(**{key: value for key, value in measures.items() if key in known}, **options)


def _recurrence(name, num_heads, key_dim):
    """Returns a recurrence with the defaults of its paper for all but the heads."""
    known = inspect.signature(RECURRENCES[name]).parameters
    measures = {"num_heads": num_heads, "key_dim": key_dim, "seed": 0}
    if name == "mamba2":  # Twice the width, as in the paper.
        measures = {"num_heads": 2 * num_heads, "head_dim": key_dim, "state_dim": 64}
    return RECURRENCES[name](**{key: value for key, value in measures.items() if key in known})


def separable_convolution(filters, kernel_size, activation=None):
    """Returns a depthwise separable convolution over tokens."""
    return keras.layers.SeparableConv1D(filters, kernel_size, activation=activation)


def is_causal(layer):
    """Returns whether a layer supports causal attention only."""
    return "bidirectional" not in layer.supports
