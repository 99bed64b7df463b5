"""Fused kernels of a graph: which of its tensors a compiler such as XLA never writes to memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from keras_transformer.planning.graph.memory import ELEMENTWISE, FUNCTIONS, REDUCTIONS, SHAPE_OPS, buffer_of

if TYPE_CHECKING:
    import tensorflow as tf

# Broadcasts and further reductions.
_OTHERS = frozenset(["BiasAddGrad", "BroadcastTo", "SparseSoftmaxCrossEntropyWithLogits", "Tile"])
_FUSED = ELEMENTWISE | REDUCTIONS | _OTHERS
_CHEAP = (ELEMENTWISE | frozenset(["Tile", "BroadcastTo"])) - FUNCTIONS | {"Pow"}
_GIVEN = SHAPE_OPS | frozenset(["Placeholder", "Const"])
_SMALL = 16  # A tensor this much smaller than another is a statistic or a bias of it.


class FusedKernels:
    """Groups of connected elementwise operations, broadcasts and reductions, each computed by one kernel.

    A kernel reads each tensor from outside once, and writes only what others read. Operations are in the same kernel if they
    are connected and equally many other operations, such as matrix products, come before them: no kernel waits for itself.
    What cheap operations compute from one large tensor and small ones is not written: its readers compute it again from
    that tensor, its source.

    Args:
        nodes: list of nodes of one graph, in order.
        outputs: tensors that are read after the last node.

    Example:

    >>> import tensorflow as tf
    >>> step = tf.function(lambda x: tf.matmul(tf.exp(x) + 1.0, x), autograph=False)
    >>> graph = step.get_concrete_function(tf.TensorSpec((2, 2))).graph
    >>> kernels = FusedKernels(graph.get_operations(), graph.outputs)
    >>> [node.type for node in graph.get_operations() if kernels.holds(node.outputs[0])]
    ['Exp']
    """

    def __init__(self, nodes: list[tf.Operation], outputs: list[tf.Tensor]) -> None:
        self._levels: dict[tf.Operation, int] = {}
        self._parents: dict[tf.Operation, tf.Operation] = {}
        self._sources: dict[Hashable, tf.Tensor] = {}
        self._kept = {buffer_of(tensor).ref() for tensor in outputs}
        for node in nodes:
            self._place(node)
        self._read_outside = set(self._kept)
        self._read_unfused: set[Hashable] = set()
        for node in nodes:
            kernel = self.kernel(node)
            buffers = [buffer_of(tensor) for tensor in node.inputs]
            self._read_outside.update(
                each.ref() for each in buffers if kernel is None or self.kernel(each.op) is not kernel
            )
            if kernel is None:
                self._read_unfused.update(each.ref() for each in buffers)

    def kernel(self, node: tf.Operation) -> tf.Operation | None:
        """Returns what identifies the kernel of a node; None if it is not fused."""
        if node not in self._parents:
            return None
        while self._parents[node] is not node:
            self._parents[node] = self._parents[self._parents[node]]
            node = self._parents[node]
        return node

    def holds(self, tensor: tf.Tensor) -> bool:
        """Returns whether a tensor stays inside a kernel."""
        return tensor.op in self._parents and tensor.ref() not in self._read_outside

    def source(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor that is read in place of a tensor: itself, or the one that it is computed from again."""
        tensor = buffer_of(tensor)
        return tensor if tensor.ref() in self._kept else self._sources.get(tensor.ref(), tensor)

    def stored(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor in memory from which kernels compute a tensor again; itself if others, as products, read it.

        A norm that computes in float32 therefore stores its input in 16 bits, and no copy in float32.
        """
        tensor = buffer_of(tensor)
        return tensor if tensor.ref() in self._read_unfused else self.source(tensor)

    def _place(self, node: tf.Operation) -> None:
        """Puts a node into the kernel of the operations before it, if that is not behind other operations."""
        before = [each.op for each in map(buffer_of, node.inputs) if not _is_given(each)]
        level = max((self._levels.get(each, 0) + (each not in self._parents) for each in before), default=0)
        self._levels[node] = level
        if node.type not in _FUSED:
            return
        self._parents[node] = node
        for each in before:
            if each in self._parents and self._levels[each] == level:
                self._parents[self.kernel(each)] = node
        self._find_source(node)

    def _find_source(self, node: tf.Operation) -> None:
        if node.type not in _CHEAP or node.outputs[0].shape.num_elements() is None:
            return
        tensor = node.outputs[0]
        least = tensor.shape.num_elements() / _SMALL
        large = [each for each in node.inputs if (each.shape.num_elements() or 0) > least]
        large = large or list(node.inputs[:1])  # Broadcast.
        sources = {self.source(each).ref(): self.source(each) for each in large}
        if len(sources) == 1 and least > 1:
            self._sources[tensor.ref()] = next(iter(sources.values()))


def _is_given(tensor: tf.Tensor) -> bool:
    """Whether a tensor is an input, a constant, or a shape."""
    is_shape = tensor.dtype.is_integer and tensor.shape.rank is not None and tensor.shape.rank < 2
    return is_shape or tensor.op.type in _GIVEN
