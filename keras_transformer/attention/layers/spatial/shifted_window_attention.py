"""Shifted-window attention of Swin."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.layers.spatial.grid_attention import GridAttention
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.partition.grid_windows import GridWindows
from keras_transformer.positions.grids.relative_grid_bias import RelativeGridBias
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Tensor


@serializable
class ShiftedWindowAttention(GridAttention):
    """Shifted-window attention of Swin: multi-head attention within square windows of a grid, with relative position bias.

        y = unshift(join_w(attention(window_w(shift(pad(x))))))

    Each window is a row of the batch. Shifted windows overlap several windows of a block without shift: the grid is rolled
    up and to the left, and a mask separates tokens that were not adjacent before. If windows do not divide the grid, it is
    padded below and to the right with zeros, which are attended as tokens, as in the published code. Time and memory grow
    with `T · window_size²`.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head.
        grid_size: pair of ints >= 1: rows and columns of the tokens, in row-major order.
        window_size: int >= 1. Rows and columns of a window. It is limited to the shorter side of the grid; then there is no
            shift. Defaults to 7.
        shifted: bool. Whether the windows are shifted by half of their size.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections have biases.
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
    >>> layer = ShiftedWindowAttention(num_heads=2, key_dim=4, grid_size=(4, 6), window_size=2, shifted=True)
    >>> x = np.ones((1, 24, 8), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 24, 8)

    Reference: Liu et al., Swin Transformer, arXiv 2103.14030, sections 3.1 and 3.2.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        grid_size: tuple[int, int],
        window_size: int = 7,
        shifted: bool = False,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        options = {"dropout": dropout, "use_bias": use_bias, "kernel_initializer": kernel_initializer, "seed": seed}
        super().__init__(num_heads, key_dim, grid_size, **options, **kwargs)
        self.window_size = positive("window_size", window_size)
        self.shifted = shifted
        window = min(window_size, *self.grid_size)
        self._shift = window // 2 if shifted and min(self.grid_size) > window_size else 0
        self._windows = GridWindows(self.grid_size, window, self._shift)
        self._window_length = window**2
        self.attention = self._make_attention(position=RelativeGridBias(window, name="position_bias"))

    def mix(self, inputs: MixerInputs) -> Tensor:
        x = inputs.query
        self._check(x.shape)
        windows, mask = self._windows.partition(x), self._windows.partition_mask(inputs.visibility.key_mask)
        masks = {"query_mask": mask, "value_mask": mask, "attention_mask": self._regions(ops.shape(x)[0])}
        return self._windows.merge(self.attention(windows, windows, **masks, training=inputs.training))

    def _regions(self, batch_size):
        """Returns the mask of shifted windows, `(B · windows, window², window²)`: True within a region."""
        if not self._shift:
            return None
        window, size = self._windows.window, self._window_length
        sides = [_side_regions(side, window, self._shift) for side in self._windows.padded]
        regions = (sides[0][:, None] * 3 + sides[1]).reshape(self._windows.padded[0] // window, window, -1, window)
        regions = ops.convert_to_tensor(regions.transpose(0, 2, 1, 3).reshape(-1, size))  # (windows, window²)
        mask = ops.equal(ops.expand_dims(regions, 2), ops.expand_dims(regions, 1))
        mask = ops.broadcast_to(ops.expand_dims(mask, 0), (batch_size, *mask.shape))
        return ops.reshape(mask, (-1, size, size))

    def get_config(self) -> Config:
        return {**super().get_config(), "window_size": self.window_size, "shifted": self.shifted}


def _side_regions(length, window, shift):
    """Returns regions along one axis of a rolled grid: 0 before the last window, 1 and 2 before and after the edge."""
    indices = np.arange(length, dtype="int32")
    return (indices >= length - window).astype("int32") + (indices >= length - shift)
