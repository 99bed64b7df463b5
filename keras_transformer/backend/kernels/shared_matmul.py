"""Matrix products of heads with a kernel that the whole batch shares."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor


def shared_matmul(x: Tensor, kernel: Tensor) -> Tensor:
    """Returns `ops.matmul(x, kernel)` for a kernel without a batch axis.

    If one kernel serves all heads, this reshapes to a product of rank 2, which is faster and avoids a bug: for a broadcast
    product of rank 4 with one head, the oneDNN of TensorFlow 2.21 on x86 reads and writes outside its operands.

    Args:
        x: tensor `(B, N, T, H)`.
        kernel: tensor `(H, W)` or `(N, H, W)`.

    Returns:
        Tensor `(B, N, T, W)`.

    Example:

    >>> shared_matmul(ops.ones((1, 2, 3, 4)), ops.ones((4, 5))).shape
    TensorShape([1, 2, 3, 5])
    """
    if len(kernel.shape) == 3 and kernel.shape[0] > 1:
        return ops.matmul(x, kernel)
    width, heads, length = kernel.shape[-2], x.shape[1], ops.shape(x)[2]
    kernel = ops.reshape(kernel, (width, ops.shape(kernel)[-1]))
    rows = ops.matmul(ops.reshape(x, (-1, width)), kernel)
    return ops.reshape(rows, (-1, heads, length, ops.shape(kernel)[1]))
