"""Memory of iterations of a loop that run ahead of the ones before, as TensorFlow runs them outside of XLA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from keras_transformer.planning.memory import PREALLOCATED, buffer_of
from keras_transformer.planning.nodes import ancestors


def waiting_bytes(body: Any, size_of: Callable[[Any], float]) -> float:
    """Returns the bytes that an iteration computes without those before it, and that wait for their results.

    Args:
        body: `FuncGraph` of the loop, whose inputs and outputs are its variables, in the same order.
        size_of: function of a symbolic tensor to its bytes.

    Example: the products, which only the sum needs in order.

    >>> import tensorflow as tf
    >>> @tf.function(autograph=False)
    ... def step(x):
    ...     add = lambda index, total: (index + 1, total + tf.matmul(x, x * tf.cast(index, "float32")))
    ...     return tf.while_loop(lambda index, total: index < 8, add, (0, x))
    >>> graph = step.get_concrete_function(tf.TensorSpec((10, 10))).graph
    >>> loop = next(node for node in graph.get_operations() if "While" in node.type)
    >>> waiting_bytes(graph._get_function(loop.get_attr("body").name).graph, lambda tensor: 400)
    400.0
    """
    ordered = {tensor.op for tensor, output in zip(body.inputs, body.outputs, strict=True) if _changes(tensor, output)}
    waiting: dict[Any, Any] = {}
    for node in ancestors([tensor.op for tensor in body.outputs]):
        inputs = [buffer_of(tensor) for tensor in node.inputs]
        if node in ordered or not any(tensor.op in ordered for tensor in inputs):
            continue
        ordered.add(node)
        waiting.update((each.ref(), each) for each in inputs if each.op not in ordered)
    return math.fsum(size_of(tensor) for tensor in waiting.values() if tensor.op.type not in PREALLOCATED)


def _changes(tensor: Any, output: Any) -> bool:
    """Whether a variable of a loop is more than a counter, and not the same in all iterations."""
    is_counter = tensor.dtype.is_integer and tensor.shape.rank == 0
    return not is_counter and buffer_of(output) is not tensor
