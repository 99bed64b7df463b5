"""Counted costs against costs computed by hand."""

import keras
import pytest
from keras import ops

if keras.backend.backend() != "tensorflow":
    pytest.skip("counts TensorFlow graphs", allow_module_level=True)

import tensorflow as tf

from graph_cost import traced_cost
from keras_transformer.planning.errors import UnknownCostError
from keras_transformer.planning.graph.multiply_adds import einsum_multiply_adds

BLOCK = 16


def block(x, index):
    return ops.slice(x, (index * BLOCK, 0), (BLOCK, 3))


def gradient(function):
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    return run


def test_a_product_of_matrices():
    cost = traced_cost(lambda x, y: ops.relu(ops.matmul(x, y)), (8, 5), (5, 7))
    assert (cost.largest, cost.flops) == (8 * 7, 2 * 8 * 5 * 7 + 8 * 7)


@pytest.mark.parametrize(
    "equation, shapes, terms",
    [
        ("btd,dnh->btnh", [(2, 3, 4), (4, 5, 6)], 2 * 3 * 4 * 5 * 6),
        ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)], 2 * 3 * 4 * 5 * 6),
        ("ij,ij->", [(3, 4), (3, 4)], 12),
    ],
)
def test_an_einsum(equation, shapes, terms):
    assert einsum_multiply_adds(equation, shapes) == terms
    assert traced_cost(lambda *xs: tf.einsum(equation, *xs), *shapes).flops in range(2 * terms, 2 * terms + 200)


def test_a_convolution_and_its_gradient():
    kernel = tf.ones((5, 1, 3, 4))

    def convolve(x):
        return tf.nn.conv2d(x, kernel, 1, "SAME")

    forward, both = (traced_cost(each, (1, 20, 1, 3)).flops for each in (convolve, gradient(convolve)))
    product = 2 * 20 * 4 * 5 * 3
    assert forward == product
    # The gradient of a linear map does not need its output; the ones are 20 * 4 elements, their shapes a few more.
    assert product <= both <= product + 20 * 4 + 20


def test_loop_counts_once_per_iteration():
    def sums(x):
        rounds = x.shape[0] // BLOCK
        return ops.while_loop(lambda i, y: i < rounds, lambda i, y: (i + 1, y + ops.sum(block(x, i))), (0, 0.0))[1]

    short, long = (traced_cost(sums, (n, 3)).flops for n in (64, 128))
    # Each iteration reads its block twice, to slice and to sum it.
    assert long - short == pytest.approx((128 - 64) * 3 * 2, rel=0.15)


def test_nested_loop_with_growing_trip_count():
    """Causal blocks: iteration i reads i + 1 blocks, n (n + 1) / 2 in total."""

    def pairs(x):
        rounds = x.shape[0] // BLOCK

        def row(i, y):
            return ops.while_loop(lambda j, y: j <= i, lambda j, y: (j + 1, y + ops.sum(block(x, j))), (0, y))[1]

        return ops.while_loop(lambda i, y: i < rounds, lambda i, y: (i + 1, row(i, y)), (0, 0.0))[1]

    blocks = {n: n // BLOCK * (n // BLOCK + 1) // 2 for n in (64, 128)}
    costs = {n: traced_cost(pairs, (n, 3)).flops for n in blocks}
    assert (costs[128] - costs[64]) / (blocks[128] - blocks[64]) == pytest.approx(BLOCK * 3 * 2, rel=0.15)


def test_tensor_stored_by_a_loop_for_its_gradient():
    """A scan that squares its state of 50 elements n times stores all states."""

    def squares(x):
        steps = x.shape[0]
        state = ops.ones((50,)) * x[0, 0]
        return ops.sum(ops.while_loop(lambda i, y: i < steps, lambda i, y: (i + 1, y * y), (0, state))[1])

    assert traced_cost(squares, (64, 3)).largest == 64 * 3
    assert traced_cost(gradient(squares), (64, 3)).largest == 64 * 50


def test_gradient_of_a_nested_loop():
    def pairs(x):
        rounds = x.shape[0] // BLOCK

        def row(i, y):
            return ops.while_loop(
                lambda j, y: j <= i, lambda j, y: (j + 1, y * ops.sum(ops.square(block(x, j)))), (0, y)
            )[1]

        return ops.while_loop(lambda i, y: i < rounds, lambda i, y: (i + 1, row(i, y)), (0, 1.0))[1]

    forward, both = (traced_cost(each, (64, 3)).flops for each in (pairs, gradient(pairs)))
    # TensorFlow computes a gradient of the full length for each slice and sums them: 10 blocks of 64 * 3 elements.
    assert both > forward + 2 * 10 * 64 * 3


def test_unknown_costs_raise():
    with pytest.raises(UnknownCostError, match="is not known"):
        traced_cost(lambda x: tf.boolean_mask(x, x > 0), (8,))
    with pytest.raises(UnknownCostError, match="is not known"):
        traced_cost(
            lambda x: ops.while_loop(lambda i: i < ops.cast(ops.sum(x), "int32"), lambda i: (i + 1,), (0,)), (8,)
        )
