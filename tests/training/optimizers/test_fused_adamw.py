"""`FusedAdamW` computes what `keras.optimizers.AdamW` computes, with the same variables."""

import keras
import numpy as np
import pytest
from graph_order import ancestors
from keras import ops

from keras_transformer import training

# float32 rounds 1 - beta_2^t, 0.001 in the first step, by up to 6e-5, and the kernel 1 - beta_2 by 4.7e-5; an update changes
# by half of that. There are five updates of 0.05.
ROUNDING = 5 * 0.05 * (6e-5 + 4.7e-5) / 2
OPTIONS = {
    "plain": {"weight_decay": 0.0},
    "betas": {"weight_decay": 0.03, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3},
    "clipped": {"clipnorm": 0.4, "use_ema": True, "ema_momentum": 0.9},
    "amsgrad": {"amsgrad": True},
    "accumulated": {"gradient_accumulation_steps": 2},
}


def trained(optimizer, steps=range(5), jit_compile=False):
    """Returns the weights of two dense layers after some steps, and the optimizer; a bias does not decay."""
    random = np.random.default_rng(0)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)])
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    batches = [(random.normal(size=(5, 3)), random.normal(size=(5, 2))) for _ in range(8)]
    for step in steps:
        model.train_on_batch(*batches[step])
    return model.get_weights(), optimizer


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_weights_and_moments_after_five_steps(name, jit_compile):
    found, fused = trained(training.FusedAdamW(0.05, **OPTIONS[name]), jit_compile=jit_compile)
    expected, plain = trained(keras.optimizers.AdamW(0.05, **OPTIONS[name]), jit_compile=jit_compile)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=ROUNDING)
    for one, other in zip(fused.variables, plain.variables, strict=True):
        np.testing.assert_allclose(np.array(one), np.array(other), atol=ROUNDING)


def test_a_schedule_and_a_saved_model(tmp_path):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    found, fused = trained(training.FusedAdamW(schedule))
    expected, _ = trained(keras.optimizers.AdamW(schedule))
    np.testing.assert_allclose(found[0], expected[0], atol=ROUNDING)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(training.FusedAdamW(0.05, beta_1=0.7), "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is training.FusedAdamW
    for each in (model, loaded):
        each.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    np.testing.assert_allclose(loaded.get_weights()[0], model.get_weights()[0], atol=1e-7)


def test_the_gradients_of_a_repeated_token_are_added():
    table = keras.layers.Embedding(3, 1, embeddings_initializer="zeros")
    model = keras.Sequential([keras.Input((2,), dtype="int32"), table, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.layers[-1].set_weights([np.array([[1.0], [3.0]]), np.zeros(1)])
    model.layers[-1].trainable = False
    model.compile(training.FusedAdamW(0.1, weight_decay=0.0), "mse")
    model.train_on_batch(np.array([[1, 1]]), np.array([[-0.5]]))
    # The gradient of the row is that of both places, 1 + 3, times the error, 2 * 0.5; 1 - 0.999 is rounded.
    np.testing.assert_allclose(np.array(model.optimizer.variables[3]), [[0], [0.001 * 4**2], [0]], rtol=5e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the kernel is TensorFlow's")
def test_an_update_is_one_kernel():
    import tensorflow as tf

    variable = keras.Variable(np.ones((3, 2)))
    optimizer = training.FusedAdamW(0.05, weight_decay=0.0)
    optimizer.build([variable])
    step = tf.function(lambda gradient: optimizer.apply([gradient], [variable]))
    kinds = [each.type for each in step.get_concrete_function(ops.ones((3, 2))).graph.get_operations()]
    assert kinds.count("ResourceApplyAdam") == 1
    assert not {"Sqrt", "Square"} & set(kinds)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the kernel is TensorFlow's")
def test_a_weight_decays_after_its_last_use():
    import tensorflow as tf

    variable = keras.Variable(np.ones((3, 2), "float32"))
    optimizer = training.FusedAdamW(0.05, weight_decay=0.1)
    optimizer.build([variable])

    def step(x):
        optimizer.apply([tf.multiply(variable.value, x, name="gradient")], [variable])

    operations = tf.function(step).get_concrete_function(ops.ones((3, 2))).graph.get_operations()
    (decay,) = (each for each in operations if each.type == "AssignSubVariableOp")
    # TensorFlow copies a variable that changes while something reads it.
    assert "gradient" in ancestors(decay)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow traces a step that creates variables twice"
)
def test_a_step_of_next_tokens_is_traced_once():
    from keras_transformer import models, tasks

    trainer = training.NextTokenTrainer(tasks.LanguageModel(models.Llama(models.Size(1, 8, 2, 16), 20)), packed=False)
    trainer.compile(training.FusedAdamW())
    calls = []
    compute_loss = trainer.compute_loss
    trainer.compute_loss = lambda *given, **options: calls.append(1) or compute_loss(*given, **options)
    ids = np.ones((2, 4), "int32")
    for _ in range(2):
        trainer.train_on_batch({"token_ids": ids, "padding_mask": ids > 0}, ids)
    assert len(calls) == 1
