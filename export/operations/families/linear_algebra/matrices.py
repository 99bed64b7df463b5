"""Batches of matrices, loops over their columns, and the entries of operations that take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.export.graph.part import Node
from keras_transformer.export.operations.conditions import is_float32
from keras_transformer.export.operations.operation import Attributes, Decomposed, Lowering, Operation, in_both
from keras_transformer.utils.types import Tensor


def in_one_batch(x: Tensor) -> Tensor:
    """Matrices `(..., m, n)` as `(B, m, n)`."""
    flat = tf.reshape(x, tf.concat([[-1], tf.shape(x)[-2:]], 0))
    flat.set_shape([None, *x.shape[-2:]])
    return flat


def in_batch_of(x: Tensor, result: Tensor) -> Tensor:
    """A result `(B, ...)` with the leading axes of the matrices `x` in place of its first one."""
    found = tf.reshape(result, tf.concat([tf.shape(x)[:-2], tf.shape(result)[1:]], 0))
    found.set_shape([*x.shape[:-2], *result.shape[1:]])
    return found


def identity(count: int | Tensor) -> Tensor:
    """The identity `(n, n)` in float32."""
    positions = tf.range(count)
    return tf.cast(tf.equal(positions[:, tf.newaxis], positions), tf.float32)


def repeated(count: int | Tensor, step: Callable[..., tuple[tf.Tensor, ...]], *first: Tensor) -> list[Tensor]:
    """The loop variables after some steps.

    Args:
        count: number of steps.
        step: takes the number of the step and the loop variables; returns the next loop variables.
        first: the loop variables at first. Their shapes stay.
    """

    def is_left(number: Tensor, *_: Tensor) -> Tensor:
        return number < count

    def next_step(number: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        found = step(number, *given)
        for new, old in zip(found, first, strict=True):
            new.set_shape(old.shape)
        return (number + 1, *found)

    return list(tf.while_loop(is_left, next_step, (tf.constant(0), *first))[1:])


def is_of_known_sizes(node: Node) -> bool:
    """Whether it takes matrices in float32 whose sizes are known; the batch may be of any size."""
    shape = node.part.spec(node.inputs[0]).shape
    return is_float32(node) and shape.rank is not None and None not in shape[-2:]


def factorization(
    name: str,
    function: Callable[..., Any],
    *attributes: str,
    when: Callable[[Node], bool] = is_float32,
    lowerings: Mapping[str, Lowering | Sequence[Lowering]] | None = None,
) -> Operation:
    """The entry of an operation of matrices in float32, which a function takes the place of in both formats.

    Args:
        name: of the operation.
        function: of `Decomposed`.
        attributes: of `Decomposed`.
        when: of `Decomposed`.
        lowerings: others in place of that in both formats.
    """
    lowerings = lowerings or in_both(Decomposed(function, attributes, when))
    return Operation(name, lowerings, rounds_operands=True, rounds_matrices=True, sum_length=_of_sizes)


def _of_sizes(attributes: Attributes, inputs: Sequence[Tensor], result: Tensor) -> float:
    """The backward error of a factorization is `n` units of its norm for the larger size `n`, as of a sum of `8 n²` numbers.

    Reference: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, theorems 9.3, 10.3, 19.4.
    """
    return 8.0 * max(inputs[0].shape[-2:]) ** 2
