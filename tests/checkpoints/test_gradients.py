"""Gradients are those of torch: of `sum(logits * direction)`, for the weights whose gradient a folder holds."""

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


@pytest.mark.parametrize("folder", WITH_GRADIENTS, ids=lambda folder: folder.name)
def test_gradients_are_those_of_torch(folder):
    expected, direction = _stored(folder)
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
                np.testing.assert_allclose(gradient, theirs, atol=2e-5 * max(1, np.abs(theirs).max()), err_msg=name)
    assert not expected, "no weight of the model is any of these"


def _logits(outputs):
    return outputs.get("logits", outputs.get("masks")) if isinstance(outputs, dict) else outputs


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
