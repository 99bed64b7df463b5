"""Windows of a grid of tokens."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor


class GridWindows:
    """Partition of the tokens of a grid into square windows, each a row of the batch, and back.

    If windows do not divide the grid, it is padded below and to the right. The windows may be shifted: the grid is rolled up
    and to the left.

    Args:
        grid_size: pair of ints >= 1: rows and columns of the tokens, in row-major order.
        window: int >= 1. Rows and columns of a window.
        shift: int >= 0. Rows and columns that the grid is rolled by.

    Attributes:
        padded: pair of ints: rows and columns of the padded grid.

    Example:

    >>> import numpy as np
    >>> windows = GridWindows((2, 3), 2)
    >>> x = windows.partition(np.arange(1.0, 7.0).reshape(1, 6, 1))
    >>> x.numpy()[:, :, 0].tolist()
    [[1.0, 2.0, 4.0, 5.0], [3.0, 0.0, 6.0, 0.0]]
    >>> windows.merge(x).numpy()[0, :, 0].tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """

    def __init__(self, grid_size: tuple[int, ...], window: int, shift: int = 0) -> None:
        self.grid_size = grid_size
        self.window = window
        self.shift = shift
        self.padded = tuple(-(-side // window) * window for side in grid_size)

    def partition(self, x: Tensor, fill_value: int = 0) -> Tensor:
        """Returns `(B · windows, window², D)` from `(B, T, D)`; `fill_value` is that of the padding."""
        (rows, columns), (height, width), window, depth = self.grid_size, self.padded, self.window, x.shape[-1]
        x = ops.reshape(x, (-1, rows, columns, depth))
        if self.padded != self.grid_size:
            sides = [[0, 0], [0, height - rows], [0, width - columns], [0, 0]]
            x = ops.pad(x, sides, constant_values=ops.cast(fill_value, x.dtype))
        x = _roll(x, self.shift)
        # One row of windows at a time, because partitioning both axes at once needs rank 6.
        x = ops.reshape(x, (-1, window, width // window, window * depth))
        return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, window * window, depth))

    def merge(self, x: Tensor) -> Tensor:
        """Returns `(B, T, D)` from `(B · windows, window², D)`."""
        (rows, columns), (height, width), window, depth = self.grid_size, self.padded, self.window, x.shape[-1]
        x = ops.reshape(x, (-1, width // window, window, window * depth))
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, height, width, depth))
        x = _roll(x, -self.shift)
        return ops.reshape(x[:, :rows, :columns], (-1, rows * columns, depth))

    def partition_mask(self, mask: Tensor | None) -> Tensor | None:
        """Returns a boolean mask of windows, `(B · windows, window²)`, from `(B, T)` or None; True in the grid's padding."""
        if mask is None:
            return None
        tokens = ops.expand_dims(ops.cast(mask, "int32"), -1)
        return ops.cast(self.partition(tokens, fill_value=1)[:, :, 0], "bool")


def _roll(x, shift):
    """Rolls `(B, height, width, D)` by `shift` rows up and columns to the left."""
    if not shift:
        return x
    x = ops.concatenate([x[:, shift:], x[:, :shift]], axis=1)
    return ops.concatenate([x[:, :, shift:], x[:, :, :shift]], axis=2)
