"""Window attention of ViTDet and SAM."""

from __future__ import annotations

from typing import Unpack

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.layers.spatial.grid_attention import GridAttention
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.grid_windows import GridWindows
from keras_transformer.positions.grids.decomposed_grid_bias import DecomposedGridBias
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Tensor


@serializable
class WindowAttention(GridAttention):
    """Window attention of ViTDet and SAM: multi-head attention within square windows of a grid, or over the whole grid, with
    decomposed relative positions.

    If windows do not divide the grid, it is padded below and to the right with zeros, which are attended as tokens, as in
    the published code. Time and memory grow with `T · window_size²`, or with `T²` without windows.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head.
        grid_size: pair of ints >= 1: rows and columns of the tokens, in row-major order.
        window_size: int >= 1, or None. Rows and columns of a window; None for attention over the whole grid.
        use_positions: bool. Whether there is a relative position bias: see `positions.DecomposedGridBias`.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections of queries, keys and values have biases.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: those of `MultiHeadAttention`, for self-attention; T is `rows · columns`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: the number of tokens is not that of the grid; an unsupported argument: causality, a cache, scores or an
            `attention_mask`.

    Masks: padding at any position. `attention.attention_maps` returns the scores within the windows.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> layer = WindowAttention(num_heads=2, key_dim=4, grid_size=(4, 6), window_size=3)
    >>> x = np.ones((1, 24, 8), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 24, 8)

    Reference: Li et al., Exploring Plain Vision Transformer Backbones for Object Detection, arXiv 2203.16527, section 3;
    Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        grid_size: tuple[int, int],
        window_size: int | None = None,
        use_positions: bool = True,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        options = {"dropout": dropout, "use_bias": use_bias, "kernel_initializer": kernel_initializer, "seed": seed}
        super().__init__(num_heads, key_dim, grid_size, **options, **kwargs)
        self.window_size = None if window_size is None else positive("window_size", window_size)
        self.use_positions = use_positions
        self._windows = None if window_size is None else GridWindows(self.grid_size, window_size)
        sides = self.grid_size if window_size is None else (window_size, window_size)
        self._window_length = sides[0] * sides[1]
        position = DecomposedGridBias(sides, name="position_bias") if use_positions else None
        self.attention = self._make_attention(position=position, use_output_bias=True)

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, mask, windows = inputs.query, inputs.visibility.key_mask, self._windows
        self._check(x.shape)
        if windows is not None:
            x, mask = windows.partition(x), windows.partition_mask(mask)
        x = self.attention(x, x, query_mask=mask, value_mask=mask, training=inputs.training)
        return x if windows is None else windows.merge(x)

    def get_config(self) -> Config:
        return {**super().get_config(), "window_size": self.window_size, "use_positions": self.use_positions}
