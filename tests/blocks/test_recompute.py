"""A block that recomputes learns what it learns without, dropout, statistics and losses included, in less memory."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import blocks, models, tasks, training
from keras_transformer.attention import CrossDecoderAttention, MultiHeadAttention, SharedKeyValue
from keras_transformer.feedforward import DenseFeedForward, MixtureOfExperts

WIDTH = 8
CLOSE = 1e-6 if keras.backend.backend() == "tensorflow" else 1e-4
random = np.random.default_rng(0)
TOKENS = random.integers(1, 20, (4, 7)).astype("int32")
MASK = np.arange(7) < np.array([[7], [5], [2], [6]])


def attend(**options):
    return MultiHeadAttention(2, 4, dropout=0.2, seed=3, **options)


def encoder():
    x = inputs = keras.Input((None, WIDTH))
    mask = keras.Input((None,), dtype="bool")
    for index in range(2):
        feedforward = (
            MixtureOfExperts(8, 3, dropout=0.2, seed=5) if index else DenseFeedForward(16, dropout=0.2, seed=7)
        )
        x = blocks.EncoderBlock(attend(), feedforward, dropout=0.3, seed=9, norm="batch_norm")(x, padding_mask=mask)
    return keras.Model([inputs, mask], x), [random.normal(size=(4, 7, WIDTH)).astype("float32"), MASK]


def decoder():
    x = keras.Input((None, WIDTH))
    memory = keras.Input((None, WIDTH))
    encoded = keras.layers.Dense(WIDTH)(memory)
    block = blocks.DecoderBlock(attend(), DenseFeedForward(16), attend(), dropout=0.3, seed=9, residual="residual")
    arrays = [random.normal(size=(4, length, WIDTH)).astype("float32") for length in (7, 3)]
    return keras.Model([x, memory], block(x, encoded)), arrays


def cross_decoder():
    x = keras.Input((None, WIDTH))
    block = blocks.CrossDecoderBlock(CrossDecoderAttention(2, 4), DenseFeedForward(16), dropout=0.3, seed=9)
    return keras.Model(x, block(x, *SharedKeyValue(2, 4)(x))), random.normal(size=(4, 7, WIDTH)).astype("float32")


def trained(model, inputs, every):
    """The losses of some steps, and all variables after them."""
    training.recompute_blocks(model, every)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    targets = np.random.default_rng(1).normal(size=(4, 7, WIDTH)).astype("float32")
    losses = [model.train_on_batch(inputs, targets) for _ in range(3)]
    return losses, [np.asarray(ops.convert_to_numpy(variable), "float64") for variable in model.variables]


@pytest.mark.exhaustive
@pytest.mark.parametrize("build", [encoder, decoder, cross_decoder])
def test_learns_what_it_learns_without(build):
    model, inputs = build()
    other = keras.models.clone_model(model)
    for variable, twin in zip(model.variables, other.variables, strict=True):
        twin.assign(ops.convert_to_numpy(variable))  # JAX gives away the memory of what it trains.
    losses, variables = trained(model, inputs, every=0)
    again, recomputed = trained(other, inputs, every=1)
    # Other numbers from a dropout change them by a hundredth; where XLA rounds, by a millionth.
    np.testing.assert_allclose(losses, again, rtol=CLOSE)
    assert losses[0] != losses[2]
    for value, twin in zip(variables, recomputed, strict=True):
        np.testing.assert_allclose(value, twin, atol=CLOSE)


@pytest.mark.exhaustive
def test_mixed_precision_learns_the_same():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("XLA rounds to bfloat16 at other places in another graph.")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, inputs = decoder()
        other = keras.models.clone_model(model)
        for variable, twin in zip(model.variables, other.variables, strict=True):
            twin.assign(ops.convert_to_numpy(variable))
        losses, variables = trained(model, inputs, every=0)
        again, recomputed = trained(other, inputs, every=1)
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_allclose(losses, again, rtol=1e-2)
    for value, twin in zip(variables, recomputed, strict=True):
        np.testing.assert_allclose(value, twin, atol=5e-3)


def loss_and_weights(every):
    """On JAX: a function of the trainable weights of an encoder, and they."""
    model = models.Encoder(models.Size(8, 32, 2, 128), vocabulary_size=20)
    training.recompute_blocks(model, every)
    inputs = {"token_ids": np.ones((4, 64), "int32"), "padding_mask": np.ones((4, 64), "bool")}

    def loss(weights):
        others = [variable.value for variable in model.non_trainable_variables]
        return model.stateless_call(weights, others, inputs, training=True)[0].sum()

    return loss, [variable.value for variable in model.trainable_variables]


def test_keeps_less_for_the_backward_pass():
    if keras.backend.backend() != "jax":
        pytest.skip("JAX says what it keeps.")
    import jax

    def kept(every):
        loss, weights = loss_and_weights(every)
        residuals = jax.eval_shape(lambda weights: jax.vjp(loss, weights)[1], weights)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(residuals))

    weights = 4 * models.Encoder(models.Size(8, 32, 2, 128), vocabulary_size=20).count_params()
    assert kept(1) - weights < (kept(0) - weights) / 8


def test_the_compiled_step_needs_less_memory():
    if keras.backend.backend() != "jax":
        pytest.skip("JAX says what it needs.")
    import jax

    def needed(every):
        loss, weights = loss_and_weights(every)
        compiled = jax.jit(jax.value_and_grad(loss)).lower(weights).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert needed(1) < needed(0) / 3


@pytest.mark.slow
def test_forward_is_computed_twice_in_the_traced_step():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Graphs of TensorFlow.")
    import tensorflow as tf

    def softmaxes(every):
        model = models.Encoder(models.Size(3, 8, 2, 16), vocabulary_size=20)
        training.recompute_blocks(model, every)

        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model({"token_ids": TOKENS, "padding_mask": MASK}, training=True) ** 2)
            return tape.gradient(loss, model.trainable_variables)

        return sum(node.op == "Softmax" for node in step.get_concrete_function().graph.as_graph_def().node)

    assert [softmaxes(every) for every in (0, 1, 2)] == [3, 6, 4]


def test_what_predicts_and_what_is_saved(tmp_path):
    model = tasks.LanguageModel(models.Decoder(models.Size(2, 8, 2, 16), vocabulary_size=20))
    inputs = {"token_ids": TOKENS, "padding_mask": MASK}
    before = ops.convert_to_numpy(model(inputs))
    assert training.recompute_blocks(model) == 2
    np.testing.assert_array_equal(before, ops.convert_to_numpy(model(inputs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    found = [layer.recompute for layer in loaded._flatten_layers() if isinstance(layer, blocks.DecoderBlock)]
    assert found == [True, True]


def test_refuses():
    with pytest.raises(ValueError, match="no block"):
        training.recompute_blocks(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="every"):
        training.recompute_blocks(models.Encoder(models.Size(1, 8, 2, 16), 20), every=-1)
