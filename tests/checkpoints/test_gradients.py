"""Gradients are those of torch: of `sum(logits * direction)`, for the weights whose gradient a folder holds."""

import contextlib

import keras
import numpy as np
import pytest

from checkpoint_cases import FOLDERS, Expected
from keras_transformer import checkpoints
from keras_transformer.checkpoints.transfers import make_transfers


def _stored(folder):
    with np.load(folder / "expected.npz") as arrays:
        found = {name.removeprefix("gradient/"): arrays[name] for name in arrays if name.startswith("gradient/")}
        return found, arrays.get("direction")


WITH_GRADIENTS = [folder for folder in FOLDERS if _stored(folder)[0]]


@pytest.mark.slow
@pytest.mark.parametrize("folder", WITH_GRADIENTS, ids=lambda folder: folder.name)
def test_gradients_are_those_of_torch(folder):
    expected, direction = _stored(folder)
    # In a model of float64, heads still compute in float32.
    bound = {"float32": 2e-5, "float64": 2e-6}[direction.dtype.name]
    with _computing_in(direction.dtype.name):
        model = checkpoints.from_huggingface(folder, verbose=0)
        inputs = Expected(folder).inputs
        gradients = _gradients(model, inputs if len(inputs) > 1 else next(iter(inputs.values())), direction)
    for transfer in make_transfers(model.checkpoint.entries, model):
        if not set(transfer.theirs) & set(expected):
            continue
        ours = transfer.layout.write([gradients[variable.path] for variable in transfer.variables])
        for name, gradient in zip(transfer.theirs, ours, strict=True):
            if name in expected:
                theirs = expected.pop(name)
                np.testing.assert_allclose(gradient, theirs, atol=bound * max(1, np.abs(theirs).max()), err_msg=name)
    assert not expected, "no weight of the model is any of these"


@contextlib.contextmanager
def _computing_in(dtype):
    """The dtype of new models within the context."""
    floats, policy = keras.config.floatx(), keras.config.dtype_policy()
    if dtype != floats and keras.backend.backend() == "jax":
        pytest.skip("JAX computes in float32.")
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(floats)
        keras.config.set_dtype_policy(policy)


def _logits(outputs):
    if not isinstance(outputs, dict):
        return outputs
    return next(outputs[name] for name in ("logits", "masks", "samples") if name in outputs)


def _gradients(model, inputs, direction):
    """Path of each trainable weight to its gradient, without dropout."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(_logits(model(inputs, training=False)) * direction)
        weights = [variable.value for variable in model.trainable_variables]
        # Such as those of boxes, which the logits do not read.
        found = tape.gradient(loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        found = [tf.convert_to_tensor(gradient) for gradient in found]
    else:
        import jax

        others = [variable.value for variable in model.non_trainable_variables]

        def loss_of(weights):
            outputs, _ = model.stateless_call(weights, others, inputs, training=False)
            return (_logits(outputs) * direction).sum()

        found = jax.grad(loss_of)([variable.value for variable in model.trainable_variables])
    return {variable.path: np.asarray(value) for variable, value in zip(model.trainable_variables, found, strict=True)}
