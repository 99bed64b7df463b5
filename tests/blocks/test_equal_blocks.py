"""Equal blocks that TensorFlow traces once: the same values, a graph that does not grow, and what is not shared."""

import contextlib

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import blocks, models, recurrence, tasks, training
from keras_transformer.blocks import equal_blocks
from keras_transformer.blocks.equal_blocks import equal_blocks_traced_once, find_equal_blocks

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a function of TensorFlow")
SIZE = models.Size(5, 16, 2, 32)
IDS = np.random.default_rng(0).integers(1, 50, (2, 12)).astype("int32")
MASK = np.arange(12) < np.array([[12], [7]])


def decoder_of(mixer):
    """A decoder of four blocks with another mixer than attention."""
    inputs = {"token_ids": keras.Input((None,), dtype="int32"), "padding_mask": keras.Input((None,), dtype="bool")}
    x = keras.layers.Embedding(50, 16)(inputs["token_ids"])
    for _ in range(4):
        x = blocks.DecoderBlock(mixer(), None, dropout=0.2)(x, padding_mask=inputs["padding_mask"])
    return keras.Model(inputs, x)


def with_adapters():
    model = tasks.LanguageModel(models.Llama(models.Size(8, 16, 2, 32), vocabulary_size=50))
    training.add_lora(model, rank=2)
    rng = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(size=weight.shape))
    training.recompute_blocks(model, every=2)
    return model


MODELS = {
    "dropout": lambda: models.GPT2(SIZE, 50, max_sequence_length=12, dropout=0.3, attention_dropout=0.2),
    "router losses": lambda: models.Mixtral(SIZE, 50),
    "encoder and decoder": lambda: models.T5(SIZE, 50, dropout=0.1),
    "layers of two kinds": lambda: models.Gemma3(models.Size(12, 16, 2, 32), 50),
    "adapters, some recomputed": with_adapters,
    "a loop": lambda: decoder_of(lambda: recurrence.RWKV7TimeMixing(2, 8, chunk_size=4)),
}


def steps(make, is_shared, monkeypatch):
    """Returns the losses and gradients of two traced steps, and the number of calls of shared functions."""
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    model, calls = make(), []
    call = equal_blocks.SharedTrace.__call__
    monkeypatch.setattr(equal_blocks.SharedTrace, "__call__", lambda *args: calls.append(args) or call(*args))
    inputs = {name: MASK if "mask" in name else IDS for name in model.input}

    @tf.function(autograph=False)
    def step():
        with equal_blocks_traced_once(model) if is_shared else contextlib.nullcontext(), tf.GradientTape() as tape:
            output = model(inputs, training=True)
            loss = tf.reduce_sum(output * tf.sin(tf.reshape(tf.range(tf.size(output), dtype="float32"), output.shape)))
            loss += sum(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        return loss, [tf.convert_to_tensor(each) for each in gradients]

    found = [[x.numpy() for x in tf.nest.flatten(step())] for _ in range(2)]
    monkeypatch.undo()
    return found, len(calls)


@pytest.mark.slow
@pytest.mark.parametrize("name", exhaustive_but(MODELS, "dropout"))
def test_values_and_gradients_of_two_steps_are_those_of_blocks_traced_one_by_one(name, monkeypatch):
    expected, none = steps(MODELS[name], False, monkeypatch)
    found, calls = steps(MODELS[name], True, monkeypatch)
    assert none == 0
    assert calls >= 4
    for ours, plain in zip(found, expected, strict=True):
        for x, y in zip(ours, plain, strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * max(1.0, np.abs(y).max()))
    if "dropout" in name:
        assert expected[0][0] != expected[1][0]  # Seeds are states: another mask in each step.


def operations(num_layers):
    """Returns the types of the operations in the training step of a trainer, and the number of functions it calls."""
    model = tasks.LanguageModel(models.GPT2(models.Size(num_layers, 16, 2, 32), 50, max_sequence_length=12))
    trainer = training.NextTokenTrainer(model, packed=False)
    trainer.compile(training.FusedAdamW(1e-3), jit_compile=False)
    seen = []
    step = trainer.train_step

    def traced(data):
        import tensorflow as tf

        found = step(data)
        graph = tf.compat.v1.get_default_graph()
        called = [op for op in graph.get_operations() if op.type in ("PartitionedCall", "StatefulPartitionedCall")]
        functions = {op.get_attr("f").name for op in called if "DecoderBlock" in op.get_attr("f").name}
        seen.append(([op.type for op in graph.get_operations()], functions))
        return found

    trainer.train_step = traced
    trainer.train_on_batch({"token_ids": IDS, "padding_mask": MASK}, IDS)
    return seen[0]


@pytest.mark.slow
def test_graph_of_a_training_step_has_the_products_of_equal_blocks_once():
    (few, functions), (many, same) = operations(4), operations(9)
    assert few.count("MatMul") == many.count("MatMul")
    assert len(functions) == len(same) == 2  # Forward and backward.
    assert many.count("PartitionedCall") - few.count("PartitionedCall") == 2 * 5


def test_blocks_that_differ_are_not_equal():
    model = models.GPT2(SIZE, 50, max_sequence_length=12)
    found = [layer for layer in model.layers if isinstance(layer, blocks.DecoderBlock)]
    assert set(find_equal_blocks(model)) == {id(block) for block in found}
    found[2].dropout = 0.5
    found[2].feedforward.trainable = False
    assert set(find_equal_blocks(model)) == {id(block) for block in found if block is not found[2]}
    found[0].recompute = True
    assert not find_equal_blocks(model)  # Three are left.


def test_block_that_reads_a_variable_of_others_is_traced_on_its_own(monkeypatch):
    shared = keras.Variable(2.0)

    class Scaled(keras.layers.Layer):
        def build(self, shape, *_):
            self.own = self.add_weight(shape=())

        def call(self, x, value, value_mask=None, use_causal_mask=True, attention_mask=None, positions=None):
            return x * self.own * FACTORS[self.own.path]

    FACTORS = {}

    def make():
        model = decoder_of(Scaled)
        FACTORS.update({weight.path: shared for weight in model.weights})
        return model

    found, calls = steps(make, True, monkeypatch)
    expected, _ = steps(make, False, monkeypatch)
    assert calls == 0
    np.testing.assert_allclose(found[0][0], expected[0][0], rtol=1e-6)


def test_captured_attention_scores_are_those_of_each_block():
    import tensorflow as tf

    from keras_transformer.attention.capture import capture

    model = models.GPT2(SIZE, 50, max_sequence_length=12, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.0)
    attention = [layer.mixer for layer in model.layers if isinstance(layer, blocks.DecoderBlock)]

    @tf.function(autograph=False)
    def scores(is_shared):
        context = equal_blocks_traced_once(model) if is_shared else contextlib.nullcontext()
        with context, capture(attention) as captured:
            model({"token_ids": IDS, "padding_mask": MASK}, training=True)
        return list(captured.values())

    for ours, plain in zip(scores(True), scores(False), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6)
    assert len({float(tf.reduce_sum(each**2)) for each in scores(True)}) == 5
