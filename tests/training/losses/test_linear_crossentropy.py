"""The loss of a linear head in chunks against the whole logits in float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.vjp import vjp
from keras_transformer.training.losses.linear_crossentropy import linear_crossentropy

RANDOM = np.random.default_rng(0)
HIDDEN, TABLE = 2 * RANDOM.normal(size=(37, 6)), RANDOM.normal(size=(50, 6))
LABELS = RANDOM.integers(0, 50, 37)
LABELS[:5] = 7  # A word several times.
WEIGHTS = RANDOM.random(37) * (RANDOM.random(37) < 0.7)


def expected():
    """Returns the loss and the gradients of the hidden states and of the table."""
    logits = HIDDEN @ TABLE.T
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    of_logits = WEIGHTS[:, None] * (probabilities - np.eye(50)[LABELS])
    loss = -(WEIGHTS * np.log(probabilities[np.arange(37), LABELS])).sum()
    return loss, of_logits @ TABLE, of_logits.T @ HIDDEN


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("chunk_size", [1, 8, 64])
def test_the_loss_and_its_gradients(chunk_size, jit_compile):
    def step(hidden, table):
        loss, pullback = vjp(
            lambda hidden, table: linear_crossentropy(
                hidden, ops.array(LABELS, "int32"), ops.array(WEIGHTS, "float32"), table, chunk_size
            ),
            hidden,
            table,
        )
        return loss, *pullback(ops.array(3.0))

    found = compiled(step, jit_compile)(ops.array(HIDDEN, "float32"), ops.array(TABLE, "float32"))
    loss, *gradients = expected()
    np.testing.assert_allclose(found[0], loss, rtol=1e-6)
    for ours, wanted in zip(found[1:], gradients, strict=True):
        np.testing.assert_allclose(ours, 3 * wanted, atol=2e-5)


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
