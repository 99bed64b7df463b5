"""The inverse of unit lower triangular matrices, by matrix products."""

from __future__ import annotations

import numpy as np
from keras import ops

from keras_transformer.utils.types import Tensor

# Matrices up to this size are inverted without being cut: products of smaller ones are dominated by their overhead.
_WHOLE = 16


def unit_lower_inverse(strictly_lower: Tensor) -> Tensor:
    """Returns `(I + L)⁻¹` for strictly lower triangular matrices L.

    The inverse of a block matrix follows from those of its diagonal blocks: `[[A, 0], [B, D]]⁻¹ = [[A⁻¹, 0], [-D⁻¹ B A⁻¹,
    D⁻¹]]`. Blocks double in size, so that there are `2 log₂ C` products for any C. Unlike the powers of L, all
    intermediate results are blocks of the inverse, so that rounding errors stay as small as those of forward substitution.

    Args:
        strictly_lower: float `(B, N, C, C)`, zeros on and above the diagonal; N and C are static.

    Returns:
        `(B, N, C, C)`.

    Example:

    >>> import numpy as np
    >>> unit_lower_inverse(np.array([[[[0.0, 0.0], [3.0, 0.0]]]]))[0, 0].numpy().tolist()
    [[1.0, 0.0], [-3.0, 1.0]]
    """
    matrices = ops.convert_to_tensor(strictly_lower)
    count, size = matrices.shape[1], matrices.shape[2]
    if size <= _WHOLE or size % 2:
        return _by_doubling(matrices)
    half = size // 2
    upper, corner, lower = (
        matrices[:, :, :half, :half],
        matrices[:, :, half:, :half],
        matrices[:, :, half:, half:],
    )
    inverses = unit_lower_inverse(ops.concatenate([upper, lower], axis=1))
    upper, lower = inverses[:, :count], inverses[:, count:]
    corner = -ops.matmul(lower, ops.matmul(corner, upper))
    first = ops.concatenate([upper, ops.zeros_like(corner)], axis=3)
    return ops.concatenate([first, ops.concatenate([corner, lower], axis=3)], axis=2)


def _by_doubling(matrices):
    """Returns the inverse, from products of whole matrices that are zero outside the blocks of each step."""
    size = matrices.shape[2]
    index, block = np.arange(size), 1
    inverse = ops.convert_to_tensor(np.eye(size)[None, None], matrices.dtype) + ops.zeros_like(matrices)
    while block < size:
        rows, columns = (index // block)[:, None], (index // block)[None, :]
        corners = matrices * ops.convert_to_tensor((rows % 2 == 1) & (columns == rows - 1), matrices.dtype)
        # Blocks of one element have the inverse 1.
        change = corners if block == 1 else ops.matmul(inverse, ops.matmul(corners, inverse))
        inverse = inverse - change
        block *= 2
    return inverse
