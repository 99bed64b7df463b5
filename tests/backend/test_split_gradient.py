"""A function and its gradient as two functions: the values, and what the first keeps for the second."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a function of TensorFlow")


def spec(*shape, dtype="float32"):
    import tensorflow as tf

    return tf.TensorSpec(shape, dtype)


def kept(function, specs, trained):
    """Returns the shapes of the tensors that are kept, without arguments."""
    from keras_transformer.backend.gradients.joint_graph import JointGraph

    joint = JointGraph(function, specs, trained)
    return [tuple(joint._graph.get_tensor_by_name(name).shape) for name in joint.kept() if name not in joint.arguments]


def test_gradients_and_integers_of_a_function_with_an_unused_argument():
    import tensorflow as tf

    from keras_transformer.backend.gradients.split_gradient import SplitGradient

    def function(x, w, unused):
        h = tf.reshape(tf.matmul(x, w), [-1])
        return [tf.nn.gelu(h), tf.argmax(h), x]

    split = SplitGradient(function, [spec(3, 2), spec(2, 4), spec(5)], [0, 1, 2], "name")
    x, w, unused = (tf.random.stateless_normal(shape, [1, 2]) for shape in ((3, 2), (2, 4), (5,)))

    @tf.function
    def gradients(run):
        with tf.GradientTape() as tape:
            tape.watch([x, w, unused])
            y, index, same = run(x, w, unused)
            loss = tf.reduce_sum(y * tf.range(12.0)) + tf.reduce_sum(same**2)
        return loss, index, tape.gradient(loss, [x, w, unused])

    (ours, index, found), (plain, same, expected) = gradients(split), gradients(function)
    np.testing.assert_allclose(ours, plain, rtol=1e-6)
    assert int(index) == int(same)
    assert found[2] is None
    for a, b in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_what_is_computed_element_by_element_and_what_shares_memory_is_not_kept():
    import tensorflow as tf

    def function(x, w, v):
        h = tf.matmul(x, w) * 3.0
        return [tf.matmul(tf.reshape(tf.nn.gelu(h, approximate=True), [-1, 64]), tf.reshape(v, [64, 2]))]

    # Of the product before the factor, of which all else is computed; the kernels are arguments.
    assert kept(function, [spec(8, 16), spec(16, 64), spec(2, 64)], [0, 1, 2]) == [(8, 64)]


def test_means_are_kept_in_place_of_what_is_computed_of_them():
    import tensorflow as tf

    def function(x, w):
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        return [tf.matmul(tf.square(x - mean), w)]

    assert kept(function, [spec(8, 16), spec(16, 4)], [0, 1]) == [(8, 1)]


def test_products_and_sums_over_rows_are_kept():
    import tensorflow as tf

    assert kept(lambda x: [tf.nn.softmax(tf.matmul(x, x)) ** 2], [spec(8, 8)], [0]) == [(8, 8)]


def test_function_that_reads_another_tensor_has_captures():
    import tensorflow as tf

    from keras_transformer.backend.gradients.split_gradient import SplitGradient

    factor = tf.Variable(2.0)
    assert SplitGradient(lambda x: [x * factor], [spec(2)], [0], "name").has_captures
    assert not SplitGradient(lambda x: [x * 2.0], [spec(2)], [0], "name").has_captures
