"""Rows of a matrix as integers, scales and minima."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# The middle code, by bits, of blocks with minima, whose codes begin with 0: in 8 bits there are codes of 5.
MIDDLES = {4: 8, 8: 16}


class Blocks(NamedTuple):
    """Rows of a matrix by blocks: `(codes - zero) * scale`, plus `minimum` where there is one.

    Attributes:
        codes: uint8 `(N, blocks, numbers of a block)`.
        scale: `(N, blocks)`: float16 or float32.
        minimum: the same, or None.
        zero: int. The code of 0 in blocks without a minimum; with one, 0.
        bits: int. 4 or 8: of the smallest integers that the codes fit into.

    Example:

    >>> codes, scale = np.array([[[7, 8, 9, 12]]], "uint8"), np.full((1, 1), 0.5, "float16")
    >>> Blocks(codes, scale, None, 8, 4).values.tolist()
    [[-0.5, 0.0, 0.5, 2.0]]
    """

    codes: np.ndarray
    scale: np.ndarray
    minimum: np.ndarray | None
    zero: int
    bits: int

    @property
    def values(self) -> np.ndarray:
        """The numbers `(N, K)`, float32."""
        numbers = self.codes.astype("float32") - np.float32(self.zero)
        numbers *= self.scale[..., None].astype("float32")
        if self.minimum is not None:
            numbers += self.minimum[..., None].astype("float32")
        return numbers.reshape(len(self.codes), -1)

    @property
    def has_whole_rows(self) -> bool:
        """Whether there is one scale for each row, in float32, and no minimum."""
        return self.codes.shape[1] == 1 and self.minimum is None and self.scale.dtype == np.float32

    def rows(self, indices: np.ndarray) -> Blocks:
        """The blocks of some rows."""
        minimum = None if self.minimum is None else self.minimum[indices]
        return self._replace(codes=self.codes[indices], scale=self.scale[indices], minimum=minimum)
