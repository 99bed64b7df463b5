"""The loss of a linear head in chunks against the whole logits in float64."""

import keras
import numpy as np
import pytest
from graph_order import ancestors
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.training.losses.linear_crossentropy import linear_crossentropy

RANDOM = np.random.default_rng(0)
HIDDEN, TABLE = 2 * RANDOM.normal(size=(37, 6)), RANDOM.normal(size=(50, 6))
LABELS = RANDOM.integers(0, 50, 37)
LABELS[:5] = 7  # A word several times.
WEIGHTS = RANDOM.random(37) * (RANDOM.random(37) < 0.7)


def expected(hidden):
    """Returns the loss and the gradients of the hidden states and of the table."""
    logits = hidden @ TABLE.T
    logits -= logits.max(-1, keepdims=True)
    likelihoods = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_logits = WEIGHTS[:, None] * (np.exp(likelihoods) - np.eye(50)[LABELS])
    return -(WEIGHTS * likelihoods[np.arange(37), LABELS]).sum(), of_logits @ TABLE, of_logits.T @ hidden


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("chunk_size", "scale"), [(1, 1), (8, 1), (64, 1), (8, 30)]
)  # 30: probabilities that round to 0.
def test_the_loss_and_its_gradients(chunk_size, scale, jit_compile):
    def step(hidden, table):
        loss, pullback = vjp(
            lambda hidden, table: linear_crossentropy(
                hidden, ops.array(LABELS, "int32"), ops.array(WEIGHTS, "float32"), table, chunk_size
            ),
            hidden,
            table,
        )
        return loss, *pullback(ops.array(3.0))

    found = compiled(step, jit_compile)(ops.array(scale * HIDDEN, "float32"), ops.array(TABLE, "float32"))
    loss, *gradients = expected(scale * HIDDEN)
    np.testing.assert_allclose(found[0], loss, rtol=1e-6)
    for ours, wanted in zip(found[1:], gradients, strict=True):
        np.testing.assert_allclose(ours, 3 * wanted, rtol=1e-5, atol=2e-5 * scale)


def compiled(step, jit_compile):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(step, jit_compile=jit_compile)
    import jax

    return jax.jit(step) if jit_compile else step


def test_a_frozen_table_costs_no_gradient():
    arguments = (ops.array(LABELS, "int32"), ops.array(WEIGHTS, "float32"))
    found = []
    for trains_table in (True, False):
        _, pullback = vjp(
            lambda hidden, table, trained=trains_table: linear_crossentropy(hidden, *arguments, table, 8, trained),
            ops.array(HIDDEN, "float32"),
            ops.array(TABLE, "float32"),
        )
        found.append([ops.convert_to_numpy(each) for each in pullback(ops.ones(()))])
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert np.abs(found[0][1]).max() > 0.1
    assert not found[1][1].any()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="compilers order the operations themselves")
def test_nothing_of_the_size_of_the_table_waits_for_the_loop():
    import tensorflow as tf

    def step(hidden, table, weights):
        with tf.GradientTape() as tape:
            tape.watch((hidden, table))
            loss = linear_crossentropy(hidden, ops.array(LABELS, "int32"), weights, table, 8)
        return tape.gradient(loss, (hidden, table))

    specs = [tf.TensorSpec(shape) for shape in ((37, 6), (50, 6), (37,))]
    operations = tf.function(step).get_concrete_function(*specs).graph.get_operations()
    (loop,) = (each for each in operations if "While" in each.type)
    (total,) = (x.op for x in loop.inputs if x.shape == (6, 50))
    assert "weights" in ancestors(total)  # Not a constant, which TensorFlow keeps in memory between steps.
    scattered = [
        each for each in operations if each.outputs and each.outputs[0].shape == (50, 6) and "Scatter" in each.type
    ]
    assert [loop.name in ancestors(each) for each in scattered] == [True]
