"""What a processor without a compiler does: kinds of access to memory, and updates of the weights, by hand."""

import keras
import pytest
import tensorflow as tf

from keras_transformer import training
from keras_transformer.planning import OPTIMIZER_SLOTS, get_device
from keras_transformer.planning.graph.access import Access
from keras_transformer.planning.graph.counting import Kernels, graph_events
from keras_transformer.planning.graph.operations import Operation
from keras_transformer.planning.options import UNFUSED_PASSES

SIDE = 16
ACCESS = Access(transposed=1 / 2, columns=1 / 3, pieces=1 / 5, scattered=1 / 7, losses=1 / 11, random=1 / 13)
# Operations on a float32 matrix: what they read and write, in matrices, and the inverse of the fraction.
KINDS = {
    "transposition": (lambda x: tf.transpose(tf.reshape(x, (4, 4, 4, 4)), (0, 2, 1, 3)), 2, 2),
    "sum of columns": (lambda x: tf.reduce_sum(x, 0), 1 + 1 / SIDE, 3),
    "sum of rows": (lambda x: tf.reduce_sum(x, 1), 1 + 1 / SIDE, 1),
    "slice": (lambda x: x[:, 1::2], 1 + 1 / 2, 5),
    "concatenation": (lambda x: tf.concat([x, x], 0), 1 + 2, 5),
    "sum by index": (lambda x: tf.math.unsorted_segment_sum(x, tf.range(SIDE), SIDE), 2 + 1 / SIDE, 7),
    "random numbers": (
        lambda x: tf.random.stateless_uniform((SIDE, SIDE), (1, 2), None, None, "int32"),
        1,
        13,
    ),
    "function": (tf.exp, 2, 1),
}


@pytest.mark.parametrize("name", KINDS)
def test_time_by_kind_of_access(name):
    run, matrices, slower = KINDS[name]
    graph = tf.function(run, autograph=False).get_concrete_function(tf.TensorSpec((SIDE, SIDE))).graph
    forward, _ = graph_events(graph, Kernels(False, access=ACCESS))
    moved = Operation.sum(each for event in forward for each in event.operations).moved
    # Keys of random numbers and row numbers are small.
    assert moved == pytest.approx(4 * SIDE**2 * matrices * slower, rel=0.1)


OPTIMIZERS = {
    "sgd": keras.optimizers.SGD,
    "momentum": lambda: keras.optimizers.SGD(momentum=0.9),
    "lion": keras.optimizers.Lion,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "fused_adamw": training.FusedAdamW,
}
# Tensors that an update of a variable reads and writes: it is read, changed and written, or only written.
UPDATES = {"AssignAddVariableOp": 3, "AssignSubVariableOp": 3, "AssignVariableOp": 1, "ResourceApplyAdam": 7}
NOTHING = ("Placeholder", "Identity", "IdentityN", "ReadVariableOp", "StatefulPartitionedCall")


def passes(graph, shape):
    """Returns how many tensors of a shape the nodes of a graph and of its functions read and write."""
    found = 0
    for node in graph.get_operations():
        if node.type == "StatefulPartitionedCall":
            found += passes(graph._get_function(node.get_attr("f").name).graph, shape)
        tensors = [*{each.ref(): each for each in node.inputs}.values(), *node.outputs]
        count = sum(tensor.shape == shape for tensor in tensors)
        found += 0 if node.type in NOTHING else (UPDATES.get(node.type, count) if count else 0)
    return found


@pytest.mark.parametrize("name", UNFUSED_PASSES)
def test_passes_of_an_update_are_those_of_its_graph(name):
    variable = keras.Variable(keras.ops.ones((SIDE, 3)))
    optimizer = OPTIMIZERS[name]()
    optimizer.build([variable])
    update = tf.function(lambda gradient: optimizer.apply([gradient], [variable]), autograph=False)
    graph = update.get_concrete_function(tf.TensorSpec((SIDE, 3))).graph
    assert passes(graph, (SIDE, 3)) == UNFUSED_PASSES[name]
    assert set(UNFUSED_PASSES) == set(OPTIMIZER_SLOTS)


def test_this_processor_is_measured():
    device = get_device("here")
    assert not device.fuses
    assert 1e-4 < device.tflops < 1e3
    assert 0.1 < device.bandwidth < 1e5
    assert all(0 < fraction < 10 for fraction in device.reached.access)
    assert 0 < device.reached.functions < 1e5
