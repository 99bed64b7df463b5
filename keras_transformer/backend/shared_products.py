"""Products of heads with weights that the whole batch shares."""

from keras import ops


def times_shared(x, kernel):
    """What `ops.matmul` gives of `(B, N, T, H)` and `(H, W)` or `(N, H, W)`.

    Not by `ops.matmul` itself where one kernel serves all: TensorFlow 2.21 on x86 hands oneDNN a broadcast product of rank 4
    that, with one head, reads and writes beside its operands. A product of rank 2 is right, and faster.
    """
    if len(kernel.shape) == 3 and kernel.shape[0] > 1:
        return ops.matmul(x, kernel)
    width, heads, length = kernel.shape[-2], x.shape[1], ops.shape(x)[2]
    kernel = ops.reshape(kernel, (width, ops.shape(kernel)[-1]))
    rows = ops.matmul(ops.reshape(x, (-1, width)), kernel)
    return ops.reshape(rows, (-1, heads, length, ops.shape(kernel)[1]))
