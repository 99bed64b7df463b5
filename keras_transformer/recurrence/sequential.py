"""Sequential scan: recurrences that cannot be parallelized, with gradients on every backend."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.backend.kernels.loops import row_list
from keras_transformer.utils.types import Tensor


def sequential_scan(
    step: Callable[..., tuple[tuple[Tensor, ...], Tensor]],
    carry: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    training: bool | None = False,
) -> tuple[tuple[Tensor, ...], Tensor]:
    """`carry, outputs[i] = step(i, carry, inputs[0][i], inputs[1][i], ...)` for i = 0, 1, ...

    The graph has one step for any number of steps. All steps have gradients.

    Args:
        step: function of an index, int32 `()`, the carry and a slice of each input, to the next carry and an output, which
            has the shape of the slice of the first input.
        carry: tuple of tensors with constant shapes and dtypes.
        inputs: tuple of tensors `(n, ...)`.
        training: bool or None. Whether gradients will be computed. On TensorFlow they are slow if False; if True, the
            graph cannot be converted to TFLite.

    Returns:
        The last carry, and the outputs `(n, ...)`.

    Example:

    >>> import numpy as np
    >>> add = lambda i, carry, x: ((carry[0] + x,), carry[0] + x)
    >>> np.array(sequential_scan(add, (np.zeros(1),), (np.arange(4.0).reshape(4, 1),))[1]).ravel().tolist()
    [0.0, 1.0, 3.0, 6.0]
    """
    carry, inputs = (tuple(ops.convert_to_tensor(x) for x in each) for each in (carry, inputs))
    count = ops.shape(inputs[0])[0]
    if isinstance(count, int) and count == 1:
        carry, output = step(ops.zeros((), "int32"), carry, *(x[0] for x in inputs))
        return carry, ops.expand_dims(output, 0)
    if keras.backend.backend() != "tensorflow":
        indices = ops.arange(count, dtype="int32")
        return ops.scan(lambda carry, each: step(each[0], carry, *each[1:]), carry, (indices, *inputs))

    # On TensorFlow, ops.scan does not set the maximum number of iterations, which XLA needs for gradients.
    return (_by_lists if training else _by_rows)(step, carry, inputs, count)


def _by_lists(step, carry, inputs, count):
    """Loops over lists of rows: the gradient of a row has its size, and that of a row of a tensor the size of the tensor."""
    lists = [row_list(x, count).unstack(x) for x in inputs]

    def advance(index, outputs, *carry):
        carry, output = step(index, carry, *(each.read(index) for each in lists))
        return (index + 1, outputs.write(index, output), *carry)

    outputs, *carry = _loop(advance, count, row_list(inputs[0], count), *carry)
    return tuple(carry), outputs.stack()


def _by_rows(step, carry, inputs, count):
    """Loops with rows scattered into one tensor, because TFLite has no tensor lists of dynamic shape."""

    def advance(index, outputs, *carry):
        carry, output = step(index, carry, *(ops.take(x, index, axis=0) for x in inputs))
        outputs = ops.scatter_update(outputs, ops.reshape(index, (1, 1)), ops.expand_dims(output, 0))
        return (index + 1, outputs, *carry)

    outputs, *carry = _loop(advance, count, ops.zeros_like(inputs[0]), *carry)
    return tuple(carry), outputs


def _loop(advance, count, *state):
    return ops.while_loop(
        lambda index, *_: ops.less(index, count),
        advance,
        (ops.zeros((), "int32"), *state),
        maximum_iterations=count,
    )[1:]
