"""A step of a model as a traced graph, in which operations and bytes are counted, and none is run."""

from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformer.planning.inner import InnerGraphs, is_list
from keras_transformer.planning.memory import ELEMENTWISE, GIVEN, LISTS, SHAPES, Lives, is_view, size_of
from keras_transformer.planning.nodes import needed
from keras_transformer.planning.products import terms
from keras_transformer.training.losses import cross_entropy

_FREE = GIVEN | SHAPES | LISTS


class Step(NamedTuple):
    """What a step costs.

    Attributes:
        operations: list of `(flops, bytes)` of its nodes: operations of products, and the bytes that are read and written,
            without what a fused kernel keeps to itself.
        flops: of its products.
        kept: bytes that the forward pass keeps for the backward pass; 0 where there is none.
        peak: bytes of all tensors at the fullest moment, gradients among them, without weights and inputs.
    """

    operations: list
    flops: int
    kept: int
    peak: int

    def seconds(self, device, dtype="float32"):
        """The time on a device that always computes, or moves bytes, as fast as it can."""
        rate = device.tflops * 1e12 * (device.float32 if dtype == "float32" else 1.0)
        bandwidth = device.bandwidth * 1e9
        return sum(max(flops / rate, moved / bandwidth) for flops, moved in self.operations)


def training_step(model, batch_size, length, fuses=True, share=None):
    """The forward and backward pass of a batch.

    Args:
        model: `keras.Model`, whose weights need no values.
        batch_size: int.
        length: int: of every axis of the inputs that has no length of its own.
        fuses: bool: see `Device`.
        share: function of the shape of a tensor to the share of it that one device has, or None for all.

    Returns:
        `Step`.

    Raises:
        UnknownCostError: a loop turns as often as what it is fed says.
    """
    weights, others, inputs = _specs(model, batch_size, length)
    boundary = None

    @tf.function(autograph=False)
    def step(weights, others, inputs):
        nonlocal boundary
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            outputs, _, losses = model.stateless_call(weights, others, inputs, training=True, return_losses=True)
            loss = tf.add_n(
                [_loss(output) for output in keras.tree.flatten(outputs)] + [tf.reduce_sum(x) for x in losses]
            )
        boundary = len(loss.graph.get_operations())
        gradients = tape.gradient(loss, weights)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    graph = step.get_concrete_function(weights, others, inputs).graph
    return _counted(graph, fuses, share, boundary)


def decoding_step(model, batch_size, context, fuses=True, share=None):
    """One new token of each row of a `tasks.LanguageModel`, after so many.

    Returns:
        `(Step, bytes of the cache)`.
    """
    dtype = keras.backend.standardize_dtype(model.compute_dtype)
    stepwise = model.stepwise
    weights = [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.variables]
    cache = _cache_specs(model, batch_size, context, dtype)

    @tf.function(autograph=False)
    def step(weights, cache, token_ids, index):
        with keras.StatelessScope(list(zip(model.variables, weights, strict=True)), initialize_variables=False):
            hidden, cache = stepwise(token_ids, cache, index)
            return model._to_logits(hidden), cache

    token = tf.TensorSpec((batch_size, 1), "int32")
    graph = step.get_concrete_function(weights, cache, token, tf.TensorSpec((batch_size,), "int32")).graph
    held = sum(tf.TensorShape(spec.shape).num_elements() * spec.dtype.size for spec in cache.values())
    return _counted(graph, fuses, share), held


def _cache_specs(model, batch_size, context, dtype):
    found = {}

    @tf.function(autograph=False)
    def make():
        with keras.StatelessScope(initialize_variables=False):
            cache = model.stepwise.init_cache(batch_size, context, dtype)
        found.update({name: tf.TensorSpec(tensor.shape, tensor.dtype) for name, tensor in cache.items()})
        return tf.constant(0)

    make.get_concrete_function()
    return found


def _specs(model, batch_size, length):
    inputs = keras.tree.map_structure(
        lambda tensor: tf.TensorSpec((batch_size, *(side or length for side in tensor.shape[1:])), tensor.dtype),
        model.input,
    )
    return (
        [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.trainable_variables],
        [tf.TensorSpec(variable.shape, variable.dtype) for variable in model.non_trainable_variables],
        inputs,
    )


def _loss(output):
    """Cross-entropy where the last axis is one of classes, as of logits."""
    output = tf.cast(output, "float32")
    return tf.reduce_mean(cross_entropy(tf.zeros(output.shape[:-1], "int32"), output))


def _counted(graph, fuses, share, boundary=None):
    counter = _Counter(InnerGraphs(graph), fuses, _part_of(share))
    nodes = _nodes(graph)
    first = None
    if boundary is not None:
        backward = set(graph.get_operations()[boundary:])
        first = next((index for index, node in enumerate(nodes) if node in backward), None)
    peak, kept = counter.lives(graph).run(first)
    operations = list(counter.operations(graph))
    return Step(operations, sum(flops for flops, _ in operations), kept, peak)


def _nodes(graph):
    return needed([tensor.op for tensor in graph.outputs])


def _part_of(share):
    """Function of a symbolic tensor to the share of it that one device has."""

    def part(tensor):
        is_known = share is not None and tensor.shape.num_elements() is not None
        return share(tuple(tensor.shape)) if is_known else 1.0

    return part


class _Counter:
    """Counts what a graph takes, with the graphs within it.

    Args:
        inner: `InnerGraphs`.
        fuses: bool: see `Device`.
        part: function of a symbolic tensor to the share of it that one device has.
    """

    def __init__(self, inner, fuses, part):
        self._inner = inner
        self._fuses = fuses
        self._part = part

    def lives(self, graph):
        """The `Lives` of the tensors of a graph."""
        return Lives(_nodes(graph), graph.outputs, self._standing, self._within)

    def _standing(self, tensor):
        return self._inner.list_bytes(tensor, self._bytes) if is_list(tensor) else self._bytes(tensor)

    def _within(self, node):
        """Bytes at the fullest moment of what a node runs; while lists of it become longer, others become shorter."""
        body = self._inner.body(node)
        if body is None:
            return 0
        lists = [pair for pair in zip(node.inputs, node.outputs, strict=False) if is_list(pair[1])]
        longer = sum(self._standing(after) - self._standing(before) for before, after in lists)
        shorter = sum(map(self._standing, self._inner.emptied(node)))
        return self.lives(body).run()[0] - min(longer, shorter)

    def _bytes(self, tensor):
        return size_of(tensor) * self._part(tensor)

    def operations(self, graph):
        """Yields `(flops, bytes)` of each node: see `Step`."""
        nodes, readers = _nodes(graph), {}
        for node in nodes:
            for tensor in node.inputs:
                readers.setdefault(tensor.ref(), []).append(node)
        for node in nodes:
            if (body := self._inner.body(node)) is not None:
                rounds = self._inner.rounds(node)
                yield from ((rounds * flops, rounds * moved) for flops, moved in self.operations(body))
            elif not (node.type in _FREE or is_view(node)):
                yield self._flops(node), self._moved(node, readers)

    def _flops(self, node):
        """Operations of products, of one device's share."""
        # A product is split if one of its sides is.
        return 2 * terms(node) * min(map(self._part, (*node.outputs, *node.inputs)), default=1.0)

    def _moved(self, node, readers):
        """Bytes that a node reads and writes."""
        read = {tensor.ref(): tensor for tensor in node.inputs}.values()
        if node.type in ("GatherV2", "ResourceGather"):
            read = [node.outputs[0]]  # Not the whole table.
        moved = sum(self._bytes(tensor) for tensor in read if not self._stays_inside(tensor, node, readers))
        for tensor in node.outputs:
            known = readers.get(tensor.ref(), ())
            inner = known and all(self._stays_inside(tensor, reader, readers) for reader in known)
            moved += 0 if inner else self._bytes(tensor)
        return moved

    def _stays_inside(self, tensor, reader, readers):
        """Whether a tensor goes from one elementwise node to a single other, which XLA makes one kernel."""
        one = tensor.op.type in ELEMENTWISE and reader.type in ELEMENTWISE
        return self._fuses and one and len(readers.get(tensor.ref(), ())) == 1
