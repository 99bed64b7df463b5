"""What a weight is multiplied with, on calibration data."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.quantization import WeightQuantizationError, WeightScheme, quantize_weights
from keras_transformer.quantization.kernels import kernels_of
from keras_transformer.quantization.observation import graph_run
from keras_transformer.quantization.observation.calibration import as_batches, calibrate
from keras_transformer.quantization.observation.graph_run import input_masks

SIZE = models.Size(2, 64, 4, 128)


def statistics_of(model, data, change=None):
    """Dict of the last two names of a path to statistics; `change` sees each weight when its turn comes."""
    found = {}
    for ready in calibrate(model, kernels_of(model), as_batches(model, data)):
        for kernel, statistics in ready:
            found[kernel.path] = statistics
            if change is not None:
                change(kernel)
    return found


def of(found, end):
    return next(each for path, each in found.items() if path.endswith(end))


def test_second_moments_are_those_of_the_inputs_and_padding_does_not_count(random):
    embedding = keras.layers.Embedding(50, 64, mask_zero=True, embeddings_initializer="normal")
    model = keras.Sequential([keras.Input((None,), dtype="int32"), embedding, keras.layers.Dense(64, name="dense")])
    ids = random.integers(1, 50, (3, 5))
    ids[1, 3:] = 0
    found = statistics_of(model, [ids[:2], ids[2:]])
    x = np.asarray(embedding.embeddings)[ids[ids != 0]].astype("float64")
    statistics = of(found, "dense/kernel")
    assert statistics.count == 13
    np.testing.assert_allclose(statistics.hessian, x.T @ x / 13, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(statistics.mean_magnitude, np.abs(x).mean(axis=0), rtol=1e-5)
    assert statistics.largest.max() == np.abs(x).max()
    change = random.normal(size=(4, 64))
    assert statistics.error(change) == pytest.approx(np.square(x @ change.T).sum() / 13, rel=1e-4)


def test_masks_of_our_models_reach_every_layer(random):
    model = tasks.LanguageModel(models.Llama(SIZE, 60, num_key_value_heads=2))
    ids = random.integers(0, 60, (2, 7)).astype("int32")
    mask = np.arange(7) < np.array([[7], [4]])
    padded = statistics_of(model, {"token_ids": ids, "padding_mask": mask})
    whole = {"token_ids": ids[:1], "padding_mask": mask[:1]}
    short = {"token_ids": ids[1:, :4], "padding_mask": mask[1:, :4]}
    alone = statistics_of(model, [whole, short])
    assert len(padded) == 15  # 7 products of each block, and the head.
    for path, statistics in padded.items():
        assert statistics.count == 11, path
        np.testing.assert_allclose(statistics.hessian, alone[path].hessian, rtol=2e-3, atol=1e-5, err_msg=path)


def test_the_mask_of_an_encoder_counts_in_the_decoder(random):
    model = tasks.LanguageModel(models.Transformer(models.Size(1, 64, 4, 128), 60))
    ids = random.integers(0, 60, (2, 6)).astype("int32")
    source, target = np.arange(6) < np.array([[6], [2]]), np.arange(6) < np.array([[3], [5]])
    data = {
        "source_token_ids": ids,
        "target_token_ids": ids,
        "source_padding_mask": source,
        "target_padding_mask": target,
    }
    found = statistics_of(model, data)
    counts = {path.split("decoder_block_0/")[-1]: each.count for path, each in found.items() if "decoder_block" in path}
    assert counts["cross_attention/key/kernel"] == counts["cross_attention/value/kernel"] == 8
    assert counts["cross_attention/query/kernel"] == counts["self_attention/key/kernel"] == 8  # 3 + 5.
    assert {each.count for path, each in found.items() if "encoder_block" in path} == {8}


def test_an_encoder_and_a_decoder_of_other_lengths(random):
    ids = random.integers(0, 60, (2, 6)).astype("int32")
    masks = input_masks({"a_token_ids": ids, "a_padding_mask": np.ones((2, 6), bool), "b_token_ids": ids[:, :3]})
    assert masks["a_token_ids"].all()
    assert masks["b_token_ids"] is None


def test_a_layer_that_is_used_twice_counts_both_inputs(random):
    inputs = keras.Input((64,))
    shared, between = keras.layers.Dense(64, name="shared"), keras.layers.Dense(64, "relu", name="between")
    model = keras.Model(inputs, shared(between(shared(inputs))))
    x = random.normal(size=(9, 64)).astype("float32")
    found = statistics_of(model, x)
    second = np.asarray(between(shared(x)))
    expected = (x.T @ x + second.T @ second) / 18
    assert of(found, "shared/kernel").count == 18
    np.testing.assert_allclose(of(found, "shared/kernel").hessian, expected, rtol=1e-3, atol=1e-5)


def test_models_in_models_are_run_node_by_node(random):
    inner = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, "relu", name="a"), keras.layers.Dense(64, name="b")]
    )
    inputs = keras.Input((64,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(64, name="c")(inner(inner(inputs))))
    x = random.normal(size=(5, 64)).astype("float32")
    order = []
    found = statistics_of(model, {"x": x}, lambda kernel: order.append(kernel.layer.name))
    assert order == ["a", "b", "c"]
    once = np.asarray(inner(x))
    np.testing.assert_allclose(of(found, "a/kernel").hessian, (x.T @ x + once.T @ once) / 10, rtol=1e-3, atol=1e-5)


def test_later_layers_see_what_was_done_to_earlier_ones(random):
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="a"), keras.layers.Dense(64, name="b")])
    x = random.normal(size=(5, 64)).astype("float32")
    found = statistics_of(model, x, lambda kernel: kernel.assign(np.eye(64)))
    np.testing.assert_allclose(of(found, "b/kernel").hessian, x.T @ x / 5, rtol=1e-5, atol=1e-6)


def test_heads_are_joined_before_the_output_of_attention(random):
    x = random.normal(size=(2, 5, 64)).astype("float32")
    inputs = keras.Input((5, 64))
    attention = keras.layers.MultiHeadAttention(4, 16, name="attention")
    model = keras.Model(inputs, attention(inputs, inputs))
    found = statistics_of(model, x)
    assert {path: each.count for path, each in found.items()} == dict.fromkeys(found, 10)
    output = of(found, "attention_output/kernel")
    context = np.asarray(model(x)).reshape(10, 64) - np.asarray(attention.output_dense.bias)
    kernel = np.asarray(attention.output_dense.kernel).reshape(64, 64).astype("float64")
    np.testing.assert_allclose(kernel.T @ output.hessian @ kernel, context.T @ context / 10, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "needs data"),
        ([], "no calibration data"),
        ([{"x": np.ones((2, 64)), "y": np.ones(2)}], "inputs are"),
        ([np.ones((2, 63))], "shape"),
        ([np.ones(63)], "shape"),
        ([np.full((2, 64), "a")], "the model takes float32"),
    ],
)
def test_bad_data_is_refused_before_work(data, message):
    model = keras.Sequential([keras.Input((64,), name="x"), keras.layers.Dense(64)])
    before = model.get_weights()
    with pytest.raises(WeightQuantizationError, match=message):
        quantize_weights(model, WeightScheme(), "gptq", data)
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_a_model_without_a_graph_is_refused():
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(64)

        def call(self, inputs):
            return self.dense(inputs)

    model = Subclassed()
    model(np.ones((1, 64)))
    with pytest.raises(WeightQuantizationError, match="no Functional model"):
        quantize_weights(model, WeightScheme(), "gptq", np.ones((1, 64)))
    assert quantize_weights(model, WeightScheme()).nbytes  # Without data its graph is not needed.


def test_the_arrays_of_a_pair_are_its_first(random):
    model = keras.Sequential([keras.Input((64,), name="x"), keras.layers.Dense(64)])
    x = random.normal(size=(3, 64))
    batches = as_batches(model, [(x, np.ones(3))])
    np.testing.assert_array_equal(batches[0]["x"], x.astype("float32"))


def test_large_activations_are_kept_in_files(random, monkeypatch):
    model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64, "relu", name=name) for name in "abc")])
    x = random.normal(size=(6, 64)).astype("float32")
    expected = statistics_of(model, [x[:3], x[3:]])
    monkeypatch.setattr(graph_run, "_IN_MEMORY", 0)
    for path, statistics in statistics_of(model, [x[:3], x[3:]]).items():
        np.testing.assert_array_equal(statistics.hessian, expected[path].hessian)


def test_nothing_behind_the_last_weight_is_computed(random):
    def fails(x):
        raise AssertionError("computed")

    inputs = keras.Input((64,))
    outputs = keras.layers.Lambda(lambda x: fails(x) if x.shape[0] else x, output_shape=(64,))(
        keras.layers.Dense(64)(inputs)
    )
    assert len(statistics_of(keras.Model(inputs, outputs), np.ones((2, 64)))) == 1
