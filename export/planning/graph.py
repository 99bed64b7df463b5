"""A step of a model as a traced graph, in which operations and bytes are counted, and none is run."""

from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformer.export.planning.memory import ELEMENTWISE, GIVEN, SHAPES, Lives, is_view, size_of
from keras_transformer.export.planning.products import UnknownCostError, terms
from keras_transformer.training.losses import cross_entropy

_LOOPS = frozenset(["While", "StatelessWhile"])
_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])

_FREE = GIVEN | SHAPES


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
        UnknownCostError: the model computes in loops.
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
    nodes = _needed(graph)
    for node in nodes:
        if node.type in _LOOPS:
            raise UnknownCostError(f"{node.name} is a loop: how often it runs, and so what it costs, is not counted.")
    first = None
    if boundary is not None:
        backward = set(graph.get_operations()[boundary:])
        first = next((index for index, node in enumerate(nodes) if node in backward), None)
    part = _part_of(share)

    def bytes_of(tensor):
        return size_of(tensor) * part(tensor)

    peak, kept = Lives(nodes, graph.outputs, bytes_of).run(first)
    readers = {}
    for node in nodes:
        for tensor in node.inputs:
            readers.setdefault(tensor.ref(), []).append(node)
    operations = [_cost(node, readers, fuses, part) for node in nodes if not (node.type in _FREE or is_view(node))]
    return Step(operations, sum(flops for flops, _ in operations), kept, peak)


def _needed(graph):
    """The nodes that the outputs depend on, in the order in which they were traced: the others are never run."""
    pending = [tensor.op for tensor in graph.outputs]
    needed = set(pending)
    while pending:
        node = pending.pop()
        found = {*(tensor.op for tensor in node.inputs), *node.control_inputs} - needed
        needed |= found
        pending += found
    return [node for node in graph.get_operations() if node in needed]


def _part_of(share):
    """Function of a symbolic tensor to the share of it that one device has."""

    def part(tensor):
        is_known = share is not None and tensor.shape.num_elements() is not None
        return share(tuple(tensor.shape)) if is_known else 1.0

    return part


def _cost(node, readers, fuses, part):
    """Operations of products of a node, and the bytes that it moves, of one device's share."""

    def bytes_of(tensor):
        return size_of(tensor) * part(tensor)

    read = {tensor.ref(): tensor for tensor in node.inputs}.values()
    if node.type in ("GatherV2", "ResourceGather"):
        read = [node.outputs[0]]  # Not the whole table.
    moved = sum(bytes_of(tensor) for tensor in read if not (fuses and _stays_inside(tensor, node, readers)))
    for tensor in node.outputs:
        inner = fuses and all(_stays_inside(tensor, reader, readers) for reader in readers.get(tensor.ref(), ()))
        moved += 0 if inner and readers.get(tensor.ref()) else bytes_of(tensor)
    count = _products(node)
    if not count:
        return 0, moved
    # A product is split if one of its sides is.
    return 2 * count * min(part(tensor) for tensor in (*node.outputs, *node.inputs)), moved


def _stays_inside(tensor, reader, readers):
    """Whether a tensor goes from one elementwise node to a single other, which XLA makes one kernel."""
    return tensor.op.type in ELEMENTWISE and reader.type in ELEMENTWISE and len(readers.get(tensor.ref(), ())) == 1


def _products(node):
    if node.type in _CALLS:
        inner = node.graph._get_function(node.get_attr("f").name)
        return sum(_products(each) for each in inner.graph.get_operations()) if inner is not None else 0
    return terms(node)
