"""The lengths of the sums of operations, which their rounding grows with."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
X, Y = np.ones((5, 3, 7), "float32"), np.ones((5, 7, 11), "float32")
IMAGE, KERNEL = np.ones((2, 9, 9, 3), "float32"), np.ones((4, 5, 3, 6), "float32")


def lengths(function, kind):
    """What is found for the operations of a kind, in a graph that computes a function of nothing."""
    import tensorflow as tf

    from keras_transformer.export.verification.graph_execution import GraphExecution
    from keras_transformer.export.verification.movement import sum_length

    graph = tf.function(function).get_concrete_function().graph
    found = []

    def note(operation, inputs, result):
        if operation.kind == kind:
            found.append(sum_length(operation, inputs, result))
        return result

    GraphExecution(graph.as_graph_def())({}, [graph.outputs[0].name], note)
    return found


@pytest.mark.parametrize(
    ("kind", "function", "expected"),
    [
        ("MatMul", lambda tf: tf.matmul(X[0], Y[0]), 7),
        ("MatMul", lambda tf: tf.matmul(X[0], X[1], transpose_a=True), 3),
        ("BatchMatMulV2", lambda tf: tf.matmul(X, Y), 7),
        ("BatchMatMulV2", lambda tf: tf.matmul(X, X, transpose_a=True), 3),
        ("Einsum", lambda tf: tf.einsum("bij,bjk->ki", X, Y), 35),
        ("Einsum", lambda tf: tf.einsum("...ij,jk->...ik", X, Y[0]), 7),
        ("Conv2D", lambda tf: tf.nn.conv2d(IMAGE, KERNEL, 2, "SAME"), 60),
        ("DepthwiseConv2dNative", lambda tf: tf.nn.depthwise_conv2d(IMAGE, KERNEL, [1, 2, 2, 1], "SAME"), 20),
        ("Conv2DBackpropInput", lambda tf: tf.nn.conv2d_transpose(IMAGE, KERNEL[:, :, :, :3], (2, 9, 9, 3), 1), 60),
        ("Mean", lambda tf: tf.reduce_mean(X, (0, 2)), 35),
        ("Cumsum", lambda tf: tf.cumsum(X, 1), 3),
        ("AddV2", lambda tf: tf.add(X, X), 1),
        ("Svd", lambda tf: tf.linalg.svd(X, compute_uv=False), 8 * 7**2),
    ],
)
def test_lengths(kind, function, expected):
    import tensorflow as tf

    assert lengths(lambda: function(tf), kind) == [expected]
