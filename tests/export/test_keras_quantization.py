"""Models that Keras itself quantized, with adapters trained on them or not: each file computes what the model computes."""

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from variants import exhaustive_but

from keras_transformer.export import export, load
from keras_transformer.export.operations import float8
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import read

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
RANDOM = np.random.default_rng(0)
FORMATS = ("saved_model", "tflite", "onnx")


def products():
    x = keras.Input((16,), name="x")
    return keras.Model(x, layers.Dense(4)(layers.Dense(24, activation="relu")(x)))


def attention():
    x = keras.Input((6, 16), name="x")
    y = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 8)(x, x)]))
    return keras.Model(x, layers.Dense(4)(y))


def trained(model, steps=4):
    shapes = model.input_shape[1:], model.output_shape[1:]
    x, y = (RANDOM.normal(size=(64, *shape)).astype("float32") for shape in shapes)
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    model.fit(x, y, epochs=steps, verbose=0)
    return x


def quantized(make, mode, has_adapters):
    """A trained model that Keras quantized, and examples; then its adapters are trained."""
    keras.utils.set_random_seed(1)
    model = make()
    x = trained(model)
    model.quantize(mode)
    for layer in model.layers if has_adapters else ():
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
    return model, trained(model) if has_adapters else x


def distances(model, x, folder, share=1.0):
    """The largest distance by format, of a share of the examples: the nearest ones."""
    expected = np.asarray(model(x))
    export(model, folder, FORMATS, progress=False)
    found = [next(iter(load(folder, backend=format)(x).values())) for format in FORMATS]
    of_examples = [np.abs(each - expected).reshape(len(x), -1).max(axis=1) / np.abs(expected).max() for each in found]
    return [np.quantile(each, share) for each in of_examples]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "mode", "has_adapters"),
    exhaustive_but(
        [
            (make, *how)
            for make in (products, attention)
            for how in (("int8", False), ("int8", True), ("int4", False), ("int4", True), ("float8", False))
        ],
        (products, "int8", True),
        (products, "float8", False),
        (attention, "int4", False),
    ),
)
def test_files_are_nearer_to_the_model_than_what_keras_saves(tmp_path, make, mode, has_adapters):
    model, x = quantized(make, mode, has_adapters)
    allowed = 1e-6
    if make is products:  # Keras does not load attention of quantized layers.
        model.save(tmp_path / "model.keras")
        saved = np.asarray(keras.models.load_model(tmp_path / "model.keras")(x))
        expected = np.asarray(model(x))
        allowed = max(allowed, np.abs(saved - expected).max() / np.abs(expected).max())
    # A number in the middle between two of float8 may be either, by the order of a sum in front.
    share = 0.9 if mode == "float8" else 1.0
    assert max(distances(model, x, tmp_path / "bundle", share)) <= allowed


@pytest.mark.slow
def test_tflite_stores_the_integers_of_keras(tmp_path):
    x = keras.Input((64,), name="x")
    model = keras.Model(x, layers.Dense(48)(layers.Dense(64, activation="relu")(x)))
    x = trained(model)
    model.quantize("int8")
    assert max(distances(model, x, tmp_path / "bundle")) <= 1e-6
    (graph,) = graphs(read(next((tmp_path / "bundle").glob("*.tflite")).read_bytes()))
    integers = [
        index for index in range(len(graph.tensors)) if graph.type(index) == "INT8" and graph.is_constant(index)
    ]
    found = {graph.shape(index): graph.value(index) for index in integers}
    expected = [np.asarray(layer.kernel).T for layer in model.layers[1:]]
    assert found.keys() == {each.shape for each in expected}
    for kernel in expected:
        np.testing.assert_array_equal(found[kernel.shape], kernel)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["gptq", "awq"])
def test_blocks_that_keras_chose_by_data_are_kept(tmp_path, mode):
    keras.utils.set_random_seed(1)
    tokens = keras.Input((8,), dtype="int32", name="tokens")
    table = layers.Embedding(50, 32)
    block = keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(32)])
    model = keras.Model(tokens, layers.Dense(4)(block(table(tokens))))
    x = RANDOM.integers(0, 50, (16, 8)).astype("int32")
    options = {"weight_bits": 4, "num_samples": 16, "sequence_length": 8, "group_size": 32}
    make = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}[mode]
    structure = {"pre_block_layers": [table], "sequential_blocks": [block]}
    config = make(
        dataset=[row[None] for row in x], tokenizer=lambda text: text, quantization_layer_structure=structure, **options
    )
    model.quantize(mode, config=config)
    assert max(distances(model, x, tmp_path / "bundle")) <= 1e-6


def test_numbers_are_rounded_as_float8_has_them():
    scales = np.array([1e-3, 1e-2, 1.0, 30.0])[:, None]
    x = np.clip(RANDOM.normal(size=(4, 5000)) * scales, -448, 448).astype("float32")
    between = np.arange(-448, 449, 8, dtype="float32")
    for numbers in (x, between, between / 4096):
        wanted = numbers.astype(ml_dtypes.float8_e4m3fn).astype("float32")
        np.testing.assert_array_equal(float8.rounded(tf.constant(numbers)), wanted)


def test_a_layer_in_float8_computes_the_same_without_the_type():
    model, x = quantized(products, "float8", has_adapters=False)
    for layer in model.layers[1:]:
        layer.inputs_scale.assign(0.7)
        layer.kernel_scale.assign(0.01)
        layer.bias.assign(RANDOM.normal(size=layer.bias.shape))
        np.testing.assert_array_equal(float8.on_rounded_numbers(layer, tf.constant(x)), layer(x))
        x = np.asarray(layer(x))
