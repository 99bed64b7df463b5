"""The events of a traced graph: what its nodes compute, move, allocate and free."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.planning.graph.access import Access
from keras_transformer.planning.graph.events import Events
from keras_transformer.planning.graph.fusion import FusedKernels
from keras_transformer.planning.graph.memory import (
    FUNCTIONS,
    LIST_OPS,
    PREALLOCATED,
    SHAPE_OPS,
    Liveness,
    buffer_of,
    is_view,
    size_of,
)
from keras_transformer.planning.graph.multiply_adds import elements, multiply_adds
from keras_transformer.planning.graph.nodes import ancestors
from keras_transformer.planning.graph.operations import Operation
from keras_transformer.planning.graph.subgraphs import Subgraphs, is_list
from keras_transformer.planning.graph.trip_counts import LOOPS

if TYPE_CHECKING:
    import tensorflow as tf

_FREE = PREALLOCATED | SHAPE_OPS | LIST_OPS
_LOOKUPS = frozenset(["GatherV2", "ResourceGather"])
# A function of the shape of a tensor to the fraction of it that one device has.
Share = Callable[[tuple[int, ...]], float]


def waiting_bytes(body: tf.Graph, size_of: Callable[[tf.Tensor], float]) -> float:
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
    waiting: dict[tf.Operation, tf.Tensor] = {}
    for node in ancestors([tensor.op for tensor in body.outputs]):
        inputs = [buffer_of(tensor) for tensor in node.inputs]
        if node in ordered or not any(tensor.op in ordered for tensor in inputs):
            continue
        ordered.add(node)
        waiting.update((each.ref(), each) for each in inputs if each.op not in ordered)
    return math.fsum(size_of(tensor) for tensor in waiting.values() if tensor.op.type not in PREALLOCATED)


def _changes(tensor: tf.Tensor, output: tf.Tensor) -> bool:
    """Whether a variable of a loop is more than a counter, and not the same in all iterations."""
    is_counter = tensor.dtype.is_integer and tensor.shape.rank == 0
    return not is_counter and buffer_of(output) is not tensor


class Kernels(NamedTuple):
    """What a device computes in one kernel, without writing the tensors inside to memory.

    Attributes:
        fuses: whether elementwise operations and reductions are fused, as by XLA: see `FusedKernels`.
        scores: lengths of sequences whose attention scores `(..., T, S)` stay inside a kernel, as in FlashAttention.
        access: `Access`.
    """

    fuses: bool = True
    scores: frozenset[int] = frozenset()
    access: Access = Access()

    def holds(self, tensor: tf.Tensor) -> bool:
        """Returns whether a tensor is attention scores that stay inside a kernel."""
        return bool(self.scores) and tensor.shape.rank is not None and self._is_square(tensor.shape)

    def _is_square(self, shape: tf.TensorShape) -> bool:
        return shape.rank >= 4 and shape[-1] in self.scores and shape[-2] in self.scores


def graph_events(graph: tf.Graph, kernels: Kernels, share: Share | None = None, boundary: int | None = None) -> Events:
    """Returns the events of a graph.

    Args:
        graph: `FuncGraph`.
        kernels: `Kernels`.
        share: function of the shape of a tensor to the fraction of it that one device has. Defaults to all of it.
        boundary: int, or None. The index of the operation with which the backward pass begins.

    Raises:
        UnknownCostError: the trip count of a loop depends on what the graph is fed.
    """
    counter = _Counter(Subgraphs(graph), kernels, _part_of(share))
    nodes = _nodes(graph)
    backward = set(graph.get_operations()[boundary:]) if boundary is not None else set()
    first = next((index for index, node in enumerate(nodes) if node in backward), len(nodes))
    memory = counter.liveness(graph).events()
    events = [each._replace(operations=done) for each, done in zip(memory, counter.operations(graph), strict=True)]
    # Views and weights do nothing.
    return Events(*([each for each in part if any(each)] for part in (events[:first], events[first:])))


def _nodes(graph: tf.Graph) -> list[tf.Operation]:
    return ancestors([tensor.op for tensor in graph.outputs])


def _part_of(share: Share | None) -> Callable[[tf.Tensor], float]:
    """Returns the function of a symbolic tensor to the fraction of it that one device has."""

    def part(tensor: tf.Tensor) -> float:
        if share is None or tensor.shape.num_elements() is None:
            return 1.0
        return share(tuple(tensor.shape))

    return part


class _Counter:
    """Counts the FLOPs and bytes of a graph and its subgraphs.

    Args:
        subgraphs: `Subgraphs`.
        kernels: `Kernels`.
        part: function of a symbolic tensor to the fraction of it that one device has.
    """

    def __init__(self, subgraphs: Subgraphs, kernels: Kernels, part: Callable[[tf.Tensor], float]) -> None:
        self._subgraphs = subgraphs
        self._kernels = kernels
        self._part = part
        self._fused: dict[int, FusedKernels] = {}

    def liveness(self, graph: tf.Graph) -> Liveness:
        """Returns the `Liveness` of the tensors of a graph."""
        stored = self._fused_in(graph).stored if self._kernels.fuses else buffer_of
        return Liveness(_nodes(graph), graph.outputs, self._allocated, self._workspace, stored)

    def _allocated(self, tensor: tf.Tensor) -> float:
        return self._subgraphs.list_bytes(tensor, self._bytes) if is_list(tensor) else self._bytes(tensor)

    def _workspace(self, node: tf.Operation) -> float:
        """Returns the peak bytes of the subgraph of a node; some lists grow in it while others shrink."""
        body = self._subgraphs.body(node)
        if body is None:
            return 0
        lists = [pair for pair in zip(node.inputs, node.outputs, strict=False) if is_list(pair[1])]
        longer = sum(self._allocated(after) - self._allocated(before) for before, after in lists)
        shorter = sum(map(self._allocated, self._subgraphs.popped_lists(node)))
        return self.liveness(body).run()[0] - min(longer, shorter) + self._ahead(node, body)

    def _ahead(self, node: tf.Operation, body: tf.Graph) -> float:
        """Returns the bytes of the iterations of a loop that run ahead; those of a compiled loop do not."""
        if self._kernels.fuses or node.type not in LOOPS:
            return 0.0
        ahead = min(self._subgraphs.trip_count(node), node.get_attr("parallel_iterations")) - 1
        return max(0.0, ahead) * waiting_bytes(body, self._bytes)

    def _bytes(self, tensor: tf.Tensor) -> float:
        """Returns the bytes of a tensor in memory; also of one that only one kernel reads, to be careful."""
        return 0.0 if self._kernels.holds(tensor) else size_of(tensor) * self._part(tensor)

    def _written(self, tensor: tf.Tensor) -> float:
        """Returns the bytes of a tensor that are read and written: none inside a kernel."""
        is_inside = self._kernels.fuses and self._fused_in(tensor.graph).holds(tensor)
        return 0.0 if is_inside else self._bytes(tensor)

    def _fused_in(self, graph: tf.Graph) -> FusedKernels:
        if id(graph) not in self._fused:
            self._fused[id(graph)] = FusedKernels(_nodes(graph), graph.outputs)
        return self._fused[id(graph)]

    def operations(self, graph: tf.Graph) -> Iterator[tuple[Operation, ...]]:
        """Yields, for each node, its `Operation`, or several for a loop."""
        read: dict[Hashable, set[Hashable]] = {}
        for node in _nodes(graph):
            if (body := self._subgraphs.body(node)) is not None:
                trips = self._subgraphs.trip_count(node)
                inside = (each for done in self.operations(body) for each in done)
                yield tuple(operation.times(trips) for operation in inside)
            elif self._is_free(node):
                yield ()
            else:
                done = Operation(self._flops(node), self._moved(node, read), self._functions(node))
                # Inside a kernel, another operation of it moves.
                yield (done,) if done.flops or done.moved else ()

    def _is_free(self, node: tf.Operation) -> bool:
        """Returns whether a node takes no time; one that slices or stacks shapes may also do so with data."""
        if not self._kernels.fuses and node.type in ("StridedSlice", "Pack") and not node.outputs[0].dtype.is_integer:
            return False
        return node.type in _FREE or is_view(node)

    def _flops(self, node: tf.Operation) -> float:
        """Returns the FLOPs on one device."""
        # A product is split if one of its operands is.
        return 2 * multiply_adds(node) * min(map(self._part, (*node.outputs, *node.inputs)), default=1.0)

    def _functions(self, node: tf.Operation) -> float:
        if node.type not in FUNCTIONS:
            return 0.0
        return elements(node.outputs[0]) * self._part(node.outputs[0])

    def _moved(self, node: tf.Operation, read: dict[Hashable, set[Hashable]]) -> float:
        """Returns the bytes that a node reads and writes.

        Args:
            node: of the graph.
            read: what each kernel has read before; a kernel reads a tensor once.
        """
        read_tensors = node.outputs if node.type in _LOOKUPS else node.inputs  # Not the whole table.
        if not self._kernels.fuses:
            inputs = {tensor.ref(): tensor for tensor in read_tensors}
            moved = sum(map(self._written, (*inputs.values(), *node.outputs)))
            return moved / self._kernels.access.fraction(node)
        fused = self._fused_in(node.graph)
        kernel = fused.kernel(node)
        before = set() if kernel is None else read.setdefault(kernel, set())
        inputs = {each.ref(): each for each in map(fused.source, read_tensors) if each.ref() not in before}
        before.update(inputs)
        before.update(tensor.ref() for tensor in node.outputs)  # Computed here, not read.
        written = [tensor for tensor in node.outputs if fused.source(tensor).ref() == tensor.ref()]
        return sum(map(self._written, (*inputs.values(), *written)))
