"""Layouts of tensors in checkpoints relative to weights of models, in both directions."""

from keras_transformer.checkpoints.layouts.combined import Empty, Fused, HeadByHead, Interleaved, Joined, Stacked
from keras_transformer.checkpoints.layouts.kernels import (
    PatchConvolution,
    PointConvolution,
    Sinusoidal,
    WeightNormalized,
)
from keras_transformer.checkpoints.layouts.layout import Layout
from keras_transformer.checkpoints.layouts.reshaped import Expanded, Flat, GridTable, Matrix, Transposed

__all__ = [
    "Empty",
    "Expanded",
    "Flat",
    "Fused",
    "GridTable",
    "HeadByHead",
    "Interleaved",
    "Joined",
    "Layout",
    "Matrix",
    "PatchConvolution",
    "PointConvolution",
    "Sinusoidal",
    "Stacked",
    "Transposed",
    "WeightNormalized",
]
