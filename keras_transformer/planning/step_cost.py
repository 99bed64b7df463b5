"""FLOPs and bytes of a training or decoding step, counted in its traced graph without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_transformer.planning.devices import Device
from keras_transformer.planning.events import Events
from keras_transformer.planning.memory import ELEMENTWISE, LIST_OPS, PREALLOCATED, SHAPE_OPS, Liveness, is_view, size_of
from keras_transformer.planning.multiply_adds import multiply_adds
from keras_transformer.planning.nodes import ancestors
from keras_transformer.planning.repeated_blocks import Groups
from keras_transformer.planning.subgraphs import Subgraphs, is_list
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.losses import cross_entropy

_FREE = PREALLOCATED | SHAPE_OPS | LIST_OPS
# A function of the shape of a tensor to the fraction of it that one device has.
_Share = Callable[[tuple[int, ...]], float]


class StepCost(NamedTuple):
    """The cost of a step.

    Attributes:
        operations: list of `(flops, bytes)` of its nodes: FLOPs of matrix products and convolutions, and bytes read and
            written, without those inside a fused kernel.
        flops: sum of the FLOPs.
        kept: bytes that the forward pass stores for the backward pass; 0 without a backward pass.
        peak: largest number of bytes allocated at once, with gradients, without weights and inputs.
    """

    operations: list[tuple[float, float]]
    flops: float
    kept: float
    peak: float

    def seconds(self, device: Device, dtype: str = "float32") -> float:
        """Returns the time on a device by the roofline model: each node at peak compute or at peak bandwidth."""
        rate = device.tflops * 1e12 * (device.float32 if dtype == "float32" else 1.0)
        bandwidth = device.bandwidth * 1e9
        return sum(max(flops / rate, moved / bandwidth) for flops, moved in self.operations)


def training_step(
    model: keras.Model,
    batch_size: int,
    length: int,
    fuses: bool = True,
    share: _Share | None = None,
    groups: Groups | None = None,
) -> StepCost:
    """Returns the cost of the forward and backward pass of a batch.

    Args:
        model: `keras.Model`, whose weights need no values.
        batch_size: int.
        length: int. The size of every unknown axis of the inputs.
        fuses: bool: see `Device`.
        share: function of the shape of a tensor to the fraction of it that one device has. Defaults to all of it.
        groups: `Groups` of equal blocks, of which few are traced: see `find_groups`. Defaults to none.

    Returns:
        `StepCost`.

    Raises:
        UnknownCostError: the trip count of a loop depends on what it is fed.
    """
    weights, others, inputs = _specs(model, batch_size, length)
    boundaries = []

    def step(weights, others, inputs):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            outputs, _, losses = model.stateless_call(weights, others, inputs, training=True, return_losses=True)
            loss = tf.add_n(
                [_loss(output) for output in keras.tree.flatten(outputs)] + [tf.reduce_sum(x) for x in losses]
            )
        boundaries.append(len(loss.graph.get_operations()))
        gradients = tape.gradient(loss, weights)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    def trace():
        graph = tf.function(step, autograph=False).get_concrete_function(weights, others, inputs).graph
        return _events(graph, fuses, share, boundaries[-1])

    return _cost(groups, trace)


def decoding_step(
    model: LanguageModel,
    batch_size: int,
    context: int,
    fuses: bool = True,
    share: _Share | None = None,
    groups: Groups | None = None,
) -> tuple[StepCost, float]:
    """Returns the cost of one new token for each row of a `tasks.LanguageModel`.

    Args:
        model: `tasks.LanguageModel`.
        batch_size: int.
        context: int. The number of tokens in the cache.
        fuses: bool: see `Device`.
        share: see `training_step`.
        groups: see `training_step`.

    Returns:
        `(StepCost, bytes of the cache)`.
    """
    dtype = keras.backend.standardize_dtype(model.compute_dtype)
    stepwise = model.stepwise
    weights = [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.variables]
    cache = _cache_specs(model, batch_size, context, dtype)

    def step(weights, cache, token_ids, index):
        with keras.StatelessScope(list(zip(model.variables, weights, strict=True)), initialize_variables=False):
            hidden, cache = stepwise(token_ids, cache, index)
            return model._to_logits(hidden), cache

    token = tf.TensorSpec((batch_size, 1), "int32")
    index = tf.TensorSpec((batch_size,), "int32")

    def trace():
        graph = tf.function(step, autograph=False).get_concrete_function(weights, cache, token, index).graph
        return _events(graph, fuses, share)

    held = sum(tf.TensorShape(spec.shape).num_elements() * spec.dtype.size for spec in cache.values())
    return _cost(groups, trace), held


def _cache_specs(model: LanguageModel, batch_size: int, context: int, dtype: str) -> dict[str, tf.TensorSpec]:
    found: dict[str, tf.TensorSpec] = {}

    @tf.function(autograph=False)
    def make():
        with keras.StatelessScope(initialize_variables=False):
            cache = model.stepwise.init_cache(batch_size, context, dtype)
        found.update({name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in cache.items()})
        return tf.constant(0)

    make.get_concrete_function()
    return found


def _specs(model: keras.Model, batch_size: int, length: int) -> tuple[list[Any], list[Any], Any]:
    inputs = keras.tree.map_structure(
        lambda tensor: tf.TensorSpec((batch_size, *(side or length for side in tensor.shape[1:])), tensor.dtype),
        model.input,
    )
    return (
        [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.trainable_variables],
        [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.non_trainable_variables],
        inputs,
    )


def _loss(output: Any) -> Any:
    """Returns the mean cross-entropy over the last axis, as of logits."""
    output = tf.cast(output, "float32")
    return tf.reduce_mean(cross_entropy(tf.zeros(output.shape[:-1], "int32"), output))


def _cost(groups: Groups | None, trace: Callable[[], Events]) -> StepCost:
    """Returns the cost of a step, traced with few of the blocks that repeat where that shows the cost of all."""
    events = None
    if groups is not None:
        traced = []
        for count in (groups.fewest, groups.fewest + 1):
            with groups.only(count):
                traced.append(trace())
        events = traced[0].repeated(traced[1], groups.count - groups.fewest)
    events = trace() if events is None else events
    operations = events.operations()
    peak, kept = events.memory()
    return StepCost(operations, sum(flops for flops, _ in operations), kept, peak)


def _events(graph: Any, fuses: bool, share: _Share | None, boundary: int | None = None) -> Events:
    """Returns the events of a graph, whose backward pass begins with the operation at the index `boundary`."""
    counter = _Counter(Subgraphs(graph), fuses, _part_of(share))
    nodes = _nodes(graph)
    backward = set(graph.get_operations()[boundary:]) if boundary is not None else set()
    first = next((index for index, node in enumerate(nodes) if node in backward), len(nodes))
    memory = counter.liveness(graph).events()
    events = [each._replace(operations=done) for each, done in zip(memory, counter.operations(graph), strict=True)]
    # Views and weights do nothing.
    return Events(*([each for each in part if any(each)] for part in (events[:first], events[first:])))


def _nodes(graph: Any) -> list[Any]:
    return ancestors([tensor.op for tensor in graph.outputs])


def _part_of(share: _Share | None) -> Callable[[Any], float]:
    """Returns the function of a symbolic tensor to the fraction of it that one device has."""

    def part(tensor: Any) -> float:
        if share is None or tensor.shape.num_elements() is None:
            return 1.0
        return share(tuple(tensor.shape))

    return part


class _Counter:
    """Counts the FLOPs and bytes of a graph and its subgraphs.

    Args:
        subgraphs: `Subgraphs`.
        fuses: bool: see `Device`.
        part: function of a symbolic tensor to the fraction of it that one device has.
    """

    def __init__(self, subgraphs: Subgraphs, fuses: bool, part: Callable[[Any], float]) -> None:
        self._subgraphs = subgraphs
        self._fuses = fuses
        self._part = part

    def liveness(self, graph: Any) -> Liveness:
        """Returns the `Liveness` of the tensors of a graph."""
        return Liveness(_nodes(graph), graph.outputs, self._allocated, self._workspace)

    def _allocated(self, tensor: Any) -> float:
        return self._subgraphs.list_bytes(tensor, self._bytes) if is_list(tensor) else self._bytes(tensor)

    def _workspace(self, node: Any) -> float:
        """Returns the peak bytes of the subgraph of a node; some lists grow in it while others shrink."""
        body = self._subgraphs.body(node)
        if body is None:
            return 0
        lists = [pair for pair in zip(node.inputs, node.outputs, strict=False) if is_list(pair[1])]
        longer = sum(self._allocated(after) - self._allocated(before) for before, after in lists)
        shorter = sum(map(self._allocated, self._subgraphs.popped_lists(node)))
        return self.liveness(body).run()[0] - min(longer, shorter)

    def _bytes(self, tensor: Any) -> float:
        return size_of(tensor) * self._part(tensor)

    def operations(self, graph: Any) -> Iterator[tuple[tuple[float, float], ...]]:
        """Yields, for each node, the `(flops, bytes)` of its operations: see `StepCost`."""
        nodes = _nodes(graph)
        readers: dict[Any, list[Any]] = {}
        for node in nodes:
            for tensor in node.inputs:
                readers.setdefault(tensor.ref(), []).append(node)
        for node in nodes:
            if (body := self._subgraphs.body(node)) is not None:
                trips = self._subgraphs.trip_count(node)
                inside = (each for done in self.operations(body) for each in done)
                yield tuple((trips * flops, trips * moved) for flops, moved in inside)
            elif node.type in _FREE or is_view(node):
                yield ()
            else:
                yield ((self._flops(node), self._moved(node, readers)),)

    def _flops(self, node: Any) -> float:
        """Returns the FLOPs on one device."""
        # A product is split if one of its operands is.
        return 2 * multiply_adds(node) * min(map(self._part, (*node.outputs, *node.inputs)), default=1.0)

    def _moved(self, node: Any, readers: dict[Any, list[Any]]) -> float:
        """Returns the bytes that a node reads and writes."""
        read = list({tensor.ref(): tensor for tensor in node.inputs}.values())
        if node.type in ("GatherV2", "ResourceGather"):
            read = [node.outputs[0]]  # Not the whole table.
        moved = sum(self._bytes(tensor) for tensor in read if not self._is_fused(tensor, node, readers))
        for tensor in node.outputs:
            known = readers.get(tensor.ref(), ())
            inner = known and all(self._is_fused(tensor, reader, readers) for reader in known)
            moved += 0 if inner else self._bytes(tensor)
        return moved

    def _is_fused(self, tensor: Any, reader: Any, readers: dict[Any, list[Any]]) -> bool:
        """Returns whether a tensor connects only two elementwise nodes, which XLA fuses into one kernel."""
        one = tensor.op.type in ELEMENTWISE and reader.type in ELEMENTWISE
        return self._fuses and one and len(readers.get(tensor.ref(), ())) == 1
