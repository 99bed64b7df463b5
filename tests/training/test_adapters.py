"""Low-rank adapters: what they add, what they leave alone, and how they are kept."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_transformer import load_model, models, tasks, training
from keras_transformer.layers.projection import Projection
from keras_transformer.training.adapters import attach, merged_values

TOKENS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]], "int32")
INPUTS = {"token_ids": TOKENS, "padding_mask": TOKENS > 0}


def classifier():
    keras.utils.set_random_seed(3)
    backbone = models.Encoder(models.Size(2, 8, 2, 16), vocabulary_size=10, name="backbone")
    return tasks.SequenceClassifier(backbone, num_classes=2, activation=None)


def trained(model):
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(INPUTS, np.array([0, 1]), epochs=3, verbose=0)
    return model


def kernels(model):
    return {weight.path: weight.numpy() for weight in model.weights if "lora" not in weight.path}


def test_a_new_adapter_changes_nothing_and_training_moves_it_alone():
    model = classifier()
    before, outputs = kernels(model), model.predict(INPUTS, verbose=0)
    training.add_lora(model, rank=3, also="^logits")
    np.testing.assert_array_equal(model.predict(INPUTS, verbose=0), outputs)
    assert sorted(weight.name for weight in model.trainable_weights) == sorted(
        ["lora_kernel_a", "lora_kernel_b"] * 4 + ["kernel", "bias"]
    )
    after = kernels(trained(model))
    for path, value in before.items():
        assert np.array_equal(after[path], value) != path.startswith("logits"), path


def test_the_layer_computes_with_the_product_of_the_paper():
    model = training.add_lora(classifier(), rank=2, alpha=6, layers="block_1/self_attention/query$")
    layer = model.get_layer("encoder_block_1").mixer.query_dense
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=weight.shape) for weight in (layer.lora_kernel_a, layer.lora_kernel_b))
    layer.lora_kernel_a.assign(a)
    layer.lora_kernel_b.assign(b)
    x = generator.normal(size=(1, 4, 8))
    assert (a.shape, b.shape) == ((8, 2), (2, 2, 4))
    kernel = layer._kernel.numpy().astype("float64") + 6 / 2 * np.tensordot(a, b, 1)
    expected = np.einsum("btd,dnh->btnh", x, kernel) + layer.bias.numpy()
    np.testing.assert_allclose(layer(x.astype("float32")), expected, atol=1e-4)


def test_training_computes_no_gradient_of_the_size_of_a_kernel():
    """Neither the sum of kernel and adapter nor its gradient is in the graph of a step."""
    import tensorflow as tf

    layer = Projection("btd,dnh->btnh", output_shape=(None, 7, 11))
    layer.build((None, None, 13))
    layer.enable_lora(2)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, layer.trainable_weights)

    traced = step.get_concrete_function(tf.TensorSpec((1, 5, 13)))
    # TensorFlow removes what leads to no output.
    outputs = [tensor.op.name for tensor in tf.nest.flatten(traced.structured_outputs)]
    needed = {
        node.name for node in tf.compat.v1.graph_util.extract_sub_graph(traced.graph.as_graph_def(), outputs).node
    }
    products = [each for each in traced.graph.get_operations() if each.type == "MatMul" and each.name in needed]
    made = {tuple(tensor.shape) for each in products for tensor in each.outputs}
    assert made == {(5, 77), (5, 2), (13, 2), (2, 77)}


def test_an_adapter_of_heads_in_the_layout_of_keras_loads_with_the_same_product(tmp_path):
    """As files of version 1 have it: A (D, N, rank) and B (rank, H), and one rank for all layers."""
    generator, name = np.random.default_rng(0), "encoder_block_1/self_attention/query"
    a, b = generator.normal(size=(8, 2, 3)).astype("float32"), generator.normal(size=(3, 4)).astype("float32")
    metadata = {"lora": json.dumps({"rank": 3, "alpha": 6.0, "layers": [name]})}
    tensors = {f"{name}/lora_kernel_a": a, f"{name}/lora_kernel_b": b}
    save_file(tensors, tmp_path / "lora.safetensors", metadata=metadata)
    model = training.load_lora(classifier(), tmp_path / "lora.safetensors")
    change = merged_values(model)[f"{name}/kernel"] - kernels(classifier())[f"{name}/kernel"]
    np.testing.assert_allclose(change, 2 * a @ b, atol=1e-5)
    training.save_lora(model, tmp_path / "again.safetensors")
    again = training.load_lora(classifier(), tmp_path / "again.safetensors")
    np.testing.assert_equal(merged_values(again), merged_values(model))


def test_each_layer_keeps_its_own_rank_and_alpha(tmp_path):
    model = classifier()
    query, value = (getattr(model.get_layer("encoder_block_0").mixer, f"{name}_dense") for name in ("query", "value"))
    attach(model, [(query, 2, 4.0), (value, 3, None)])
    training.save_lora(model, tmp_path / "lora.safetensors")
    again = training.load_lora(classifier(), tmp_path / "lora.safetensors").get_layer("encoder_block_0").mixer
    assert (again.query_dense.lora_rank, again.query_dense.lora_alpha) == (2, 4.0)
    assert (again.value_dense.lora_rank, again.value_dense.lora_alpha) == (3, 3.0)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_merging_under_a_mixed_policy_adds_in_float32(policy):
    layer = Projection("btd,dnh->btnh", output_shape=(None, 2, 4), dtype=policy)
    layer.build((None, None, 8))
    layer.enable_lora(1)
    layer.lora_kernel_b.assign(np.full((1, 2, 4), 1e-3))
    store = {}
    layer.save_own_variables(store)
    expected = layer._kernel.numpy() + np.tensordot(layer.lora_kernel_a.numpy(), layer.lora_kernel_b.numpy(), 1)
    np.testing.assert_allclose(store["0"], expected, rtol=1e-6, atol=1e-8)


def test_a_layer_with_an_adapter_of_heads_is_not_quantized():
    layer = training.add_lora(classifier(), rank=2).get_layer("encoder_block_0").mixer.query_dense
    with pytest.raises(ValueError, match="query' has an adapter.*merge_lora first"):
        layer.quantize("int8")


def test_merging_keeps_the_outputs_and_takes_the_adapters_out():
    model = trained(training.add_lora(classifier(), rank=2))
    outputs, count = model.predict(INPUTS, verbose=0), classifier().count_params()
    training.merge_lora(model)
    model.make_predict_function(force=True)
    np.testing.assert_allclose(model.predict(INPUTS, verbose=0), outputs, atol=1e-6)
    assert model.count_params() == count
    assert len(model.trainable_weights) == len(classifier().trainable_weights)
    with pytest.raises(training.AdapterError, match="no adapters"):
        training.merge_lora(model)


def of_table():
    """A table and a layer of random weights."""
    keras.utils.set_random_seed(4)
    table, dense = keras.layers.Embedding(10, 16, name="table"), keras.layers.Dense(6, name="dense")
    return keras.Sequential([keras.Input((3,)), table, dense], name="model")


def with_adapters(mode):
    """The same, quantized by Keras, with adapters as large as the weights."""
    model = of_table()
    if mode is not None:
        model.quantize(mode)
    training.add_lora(model, rank=2, alpha=6, layers="table|dense")
    for layer in model.layers:
        b = next(weight for weight in layer.weights if weight.name in ("lora_embeddings_b", "lora_kernel_b"))
        b.assign(0.3 * np.random.default_rng(0).normal(size=b.shape))
    return model


@pytest.mark.parametrize(("mode", "limit"), [(None, 1e-6), ("int8", 0.03), ("int4", 0.3)])
def test_merging_quantizes_a_sum_with_scales_of_its_own(mode, limit):
    """With the scales of before, which fit the kernels alone, the outputs would be another model's."""
    model, tokens = with_adapters(mode), TOKENS[:, :3]
    expected = np.asarray(model(tokens))
    training.merge_lora(model)
    assert not any("lora" in weight.name for weight in model.weights)
    assert np.abs(np.asarray(model(tokens)) - expected).max() < limit * np.abs(expected).max()


def test_the_adapter_of_a_table_is_kept_in_a_file(tmp_path):
    model = with_adapters(None)
    training.save_lora(model, tmp_path / "lora.safetensors")
    again = training.load_lora(of_table(), tmp_path / "lora.safetensors")
    np.testing.assert_array_equal(again(TOKENS[:, :3]), model(TOKENS[:, :3]))
    assert [weight.name for weight in again.layers[0].trainable_weights] == ["lora_embeddings_a", "lora_embeddings_b"]


def test_merged_values_are_those_after_merging_and_the_model_keeps_its_own():
    model = trained(training.add_lora(classifier(), rank=2, also="^logits"))
    before, outputs = {weight.path: weight.numpy() for weight in model.weights}, model(INPUTS)
    values = merged_values(model)
    np.testing.assert_equal({weight.path: weight.numpy() for weight in model.weights}, before)
    np.testing.assert_array_equal(model(INPUTS), outputs)
    assert sum(not np.array_equal(values[path], before[path]) for path in values) == 4
    training.merge_lora(model)
    np.testing.assert_equal(values, {weight.path: weight.numpy() for weight in model.weights})
    np.testing.assert_equal(merged_values(model), values)


def test_adapters_are_saved_alone(tmp_path):
    model = trained(training.add_lora(classifier(), rank=2, also="^logits"))
    training.save_lora(model, tmp_path / "lora.safetensors")
    again = training.load_lora(classifier(), tmp_path / "lora.safetensors")
    np.testing.assert_allclose(again.predict(INPUTS, verbose=0), model.predict(INPUTS, verbose=0), atol=1e-6)
    assert [weight.path for weight in again.trainable_weights] == [weight.path for weight in model.trainable_weights]
    assert [path.name for path in tmp_path.iterdir()] == ["lora.safetensors"]


def test_a_saved_model_holds_the_sums(tmp_path):
    model = trained(training.add_lora(classifier(), rank=2))
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(INPUTS, verbose=0), model.predict(INPUTS, verbose=0), atol=1e-6)


def test_refusals(tmp_path):
    with pytest.raises(training.AdapterError, match="nothing"):
        training.add_lora(classifier(), layers="nothing")
    with pytest.raises(training.AdapterError, match="rank"):
        training.add_lora(classifier(), rank=0)
    with pytest.raises(training.AdapterError, match="already"):
        training.add_lora(training.add_lora(classifier()))
    with pytest.raises(training.AdapterError, match="No such file"):
        training.load_lora(classifier(), tmp_path / "none")
    (tmp_path / "text").write_text("text")
    with pytest.raises(training.AdapterError, match="no adapters"):
        training.load_lora(classifier(), tmp_path / "text")
    training.save_lora(training.add_lora(classifier()), tmp_path / "lora")
    other = tasks.SequenceClassifier(models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=10), num_classes=2)
    before = kernels(other)
    with pytest.raises(training.AdapterError, match="encoder_block_1"):
        training.load_lora(other, tmp_path / "lora")
    np.testing.assert_equal(kernels(other), before)
