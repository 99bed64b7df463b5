"""Training with the integers of full_int8 files: the rounding, its gradients, and which activations are rounded."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_transformer import load_model, models, training
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.backend.keras_private import weight
from keras_transformer.quantization import WeightQuantizationError
from keras_transformer.training.compression.fake_quantization import fake_quantized_within, rounded_by_channel
from keras_transformer.training.compression.integers.activation_quantizer import ActivationQuantizer
from keras_transformer.training.compression.integers.layers import quantizers_of
from keras_transformer.training.compression.integers.model import integer_layers, observed

IMAGES = np.random.default_rng(0).normal(size=(16, 8, 8, 3)).astype("float32")
LABELS = np.arange(16) % 3


def network():
    """Convolutions with norms, rectifiers and a function that is none, away from their initial values."""
    keras.utils.set_random_seed(1)
    images = keras.Input((8, 8, 3), name="images")
    x = layers.Conv2D(4, 3, padding="same", use_bias=False, name="first")(images)
    x = layers.ReLU(6.0, name="rectifier")(layers.BatchNormalization(name="norm", momentum=0.5)(x))
    x = layers.DepthwiseConv2D(3, activation="silu", name="depthwise")(x)
    x = layers.Flatten(name="flat")(layers.MaxPooling2D(name="pool")(x))
    model = keras.Model(images, layers.Dense(3, name="logits")(x), name="network")
    random = np.random.default_rng(2)
    for each in model.weights:
        each.assign(each + np.abs(random.normal(scale=0.3, size=each.shape)))
    return model


def trained(model, epochs=2, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, **{"run_eagerly": True, **options})
    model.fit(IMAGES, LABELS, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model


def rounded(model):
    """The names of the quantizers of each layer that has any."""
    names = {layer.name: [each.name for each in quantizers_of(layer)] for layer in integer_layers(model)}
    return {layer: each for layer, each in names.items() if each}


def within(x, ends):
    """What integers of a range stand for, float64."""
    scale = (ends[1] - ends[0]) / 255
    zero = np.round(-128 - ends[0] / scale)
    return (np.clip(np.round(x / scale) + zero, -128, 127) - zero) * scale


def by_channel(kernel, axes):
    scale = np.abs(kernel).max(axes, keepdims=True) / 127
    return np.round(kernel / scale) * scale


def test_values_and_gradients_of_a_range():
    random = np.random.default_rng(3)
    x, upstream = (random.normal(size=(5, 40)).astype("float32") for _ in range(2))
    ends = np.array([-0.9, 1.4], "float32")
    value, pullback = vjp(fake_quantized_within, *map(ops.convert_to_tensor, (x, ends)))
    np.testing.assert_allclose(value, within(x.astype("float64"), ends), atol=1e-6)
    of_x, of_ends = (np.asarray(each) for each in pullback(ops.convert_to_tensor(upstream)))
    scale = (ends[1] - ends[0]) / 255
    zero = np.round(-128 - ends[0] / scale)
    code = x / scale + zero
    below, above = code < -128.5, code > 127.5
    assert 5 < below.sum() < 100
    assert 5 < above.sum() < 100
    np.testing.assert_array_equal(of_x, upstream * ~(below | above))
    # Beyond an end, the output is the end; within, its gradient by the scale is the error of the code.
    error = np.where(below | above, 0, np.clip(np.round(code), -128, 127) - code) / 255
    expected = [(upstream * np.where(below, 1, -error)).sum(), (upstream * np.where(above, 1, error)).sum()]
    np.testing.assert_allclose(of_ends, expected, rtol=1e-3)


@pytest.mark.parametrize(("shape", "channels"), [((3, 3, 2, 5), [-1]), ((3, 3, 4, 2), [-2, -1]), ((2, 2, 5, 3), [-2])])
def test_weights_are_rounded_by_channel(shape, channels):
    kernel = np.random.default_rng(4).normal(size=shape).astype("float32")
    value, pullback = vjp(lambda x: rounded_by_channel(x, channels), ops.convert_to_tensor(kernel))
    axes = tuple(axis for axis in range(4) if axis - 4 not in channels)
    np.testing.assert_allclose(value, by_channel(kernel.astype("float64"), axes), atol=1e-6)
    np.testing.assert_array_equal(pullback(ops.convert_to_tensor(kernel))[0], kernel)


@pytest.mark.parametrize("step", ["learned", "straight_through"])
def test_a_range_is_a_moving_average_times_what_is_learned(step):
    quantizer = ActivationQuantizer(step, momentum=0.75)
    batches = [np.array([[-1.0, 2.0]]), np.array([[-3.0, 1.0]])]
    np.testing.assert_allclose(quantizer(batches[0]), batches[0], atol=0.012)  # Nothing is known before training.
    assert quantizer.range() is None
    for batch in batches:
        quantizer(batch, training=True)
    least, largest = -0.75 * 1 - 0.25 * 3, 0.75 * 2 + 0.25 * 1
    assert quantizer.range() == pytest.approx((least, largest))
    assert [each.name for each in quantizer.trainable_weights] == (["relative_range"] if step == "learned" else [])
    if step == "learned":
        quantizer.relative_range.assign([0.5, 2.0])
        assert quantizer.range() == pytest.approx((0.5 * least, 2 * largest))
        np.testing.assert_allclose(quantizer(batches[1]), within(batches[1], (0.5 * least, 2 * largest)), atol=1e-6)
    quantizer.trainable = False
    before = quantizer.range()
    quantizer(np.array([[-9.0, 9.0]]), training=True)
    assert quantizer.range() == before


def test_learned_ranges_follow_the_loss():
    """A range that is twice as large as the numbers shrinks: what is learned is less than 1."""
    x = keras.Input((16,))
    model = keras.Model(x, layers.Activation("elu", name="function")(x))
    aware = training.quantization_aware(model, "full_int8")
    aware.get_layer("function").output_quantizer.averages.assign([-1.0, 400.0])
    aware.get_layer("function").output_quantizer.trainable = False
    aware.get_layer("function").output_quantizer.relative_range.trainable = True
    rows = np.random.default_rng(5).uniform(0, 2, (256, 16)).astype("float32")
    aware.compile(keras.optimizers.Adam(0.03), "mse")
    before = aware.evaluate(rows, rows, verbose=0)
    aware.fit(rows, rows, epochs=40, verbose=0)
    assert aware.evaluate(rows, rows, verbose=0) < before / 10
    assert aware.get_layer("function").output_quantizer.range()[1] < 200


def test_what_is_rounded_is_what_files_have_between_operators():
    aware = training.quantization_aware(network(), "full_int8")
    assert rounded(aware) == {
        "first": ["input_quantizer_0"],
        "rectifier": ["output_quantizer"],  # The norm and the rectifier are part of the convolution.
        "depthwise": ["preactivation_quantizer", "output_quantizer"],
        "logits": ["output_quantizer"],  # Pooling and reshaping return some of the numbers.
    }


def test_scores_and_weights_of_attention_are_rounded():
    x = keras.Input((6, 16), name="x")
    y = layers.MultiHeadAttention(2, 8, name="attention")(x, x)
    y = layers.LayerNormalization(name="norm")(layers.Add(name="sum")([x, y]))
    y = layers.GroupQueryAttention(8, 4, 2, name="grouped")(y, y)
    model = keras.Model(x, y)
    aware = training.quantization_aware(model, "full_int8")
    of_projections = {"query": ["input_quantizer_0", "output_quantizer"], "key": ["output_quantizer"]}
    found = rounded(aware)
    assert {name: found[name] for name in ("norm", "sum")} == {name: ["output_quantizer"] for name in ("norm", "sum")}
    for attention, of_query in (("attention", of_projections["query"]), ("grouped", ["output_quantizer"])):
        parts = {each.name: each for each in keras_parts(aware.get_layer(attention))}
        (softmax,) = (each for each in parts.values() if isinstance(each, layers.Softmax))
        names = {
            name: [each.name for each in quantizers_of(parts[name])] for name in ("query", "key", "attention_output")
        }
        both = ["input_quantizer_0", "output_quantizer"]
        assert names == {"query": of_query, "key": ["output_quantizer"], "attention_output": both}
        assert [each.name for each in quantizers_of(softmax)] == both
        assert softmax.output_quantizer.range() == (0.0, 255 / 256)  # That of the integer kernel.


def keras_parts(layer):
    return [each for each in integer_layers(layer) if each is not layer]


def test_attention_by_hand():
    """One head without biases: scores, weights and their sums are computed from rounded numbers."""
    x = keras.Input((5, 4), name="x")
    model = keras.Model(x, layers.MultiHeadAttention(1, 4, use_bias=False, name="attention")(x, x))
    aware = training.quantization_aware(model, "full_int8")
    rows = np.random.default_rng(6).normal(size=(8, 5, 4)).astype("float32")
    aware(rows, training=True)
    parts = {each.name: each for each in keras_parts(aware.get_layer("attention"))}
    (softmax,) = (each for each in parts.values() if isinstance(each, layers.Softmax))

    def projected(name, value):
        kernel = weight(parts[name], "kernel").numpy().astype("float64").reshape(4, 4)
        return within(value @ by_channel(kernel, (0,)), parts[name].output_quantizer.range())

    read = within(rows.astype("float64"), parts["query"].input_quantizer_0.range())
    query, key, value = projected("query", read), projected("key", rows), projected("value", rows)
    # Only one of the layers that read the input rounds it for itself.
    assert not hasattr(parts["key"], "input_quantizer_0")
    scores = within(query / 2 @ key.swapaxes(1, 2), softmax.input_quantizer_0.range())
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    context = within(weights, (0, 255 / 256)) @ value
    context = within(context, parts["attention_output"].input_quantizer_0.range())
    found = aware(rows)
    expected = projected("attention_output", context)
    step = np.ptp(parts["attention_output"].output_quantizer.range()) / 255
    # A number at the border of two integers may fall on either side.
    assert np.isclose(found, expected, atol=1e-5).mean() > 0.9
    np.testing.assert_allclose(found, expected, atol=2.1 * step)


def test_our_attention_and_recurrent_layers():
    encoder = training.quantization_aware(models.Encoder(models.Size(1, 16, 2, 32), 40), "full_int8")
    found = rounded(encoder)
    assert found["hidden"] == ["preactivation_quantizer", "output_quantizer"]
    scores = [names for name, names in found.items() if name.startswith("scaled_dot")]
    weights = [names for name, names in found.items() if name.startswith("dropout")]
    assert (scores, weights) == ([["output_quantizer"]], [["input_quantizer_0"]])
    x = keras.Input((5, 4))
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True, name="memory"), name="both")(x)
    recurrent = training.quantization_aware(keras.Model(x, layers.GRU(2, name="gates")(y)), "full_int8")
    assert rounded(recurrent) == {
        "forward_memory": ["input_quantizer_0", "output_quantizer"],
        "backward_memory": ["output_quantizer"],
        "gates": ["input_quantizer_0", "output_quantizer"],  # Both directions are joined by an operation.
    }


@pytest.mark.parametrize("cell", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_recurrent_cells_multiply_with_rounded_kernels(cell):
    x = keras.Input((5, 4))
    model = keras.Model(x, cell(3, name="memory")(x))
    aware = training.quantization_aware(model, "full_int8")
    rows = np.random.default_rng(7).normal(size=(8, 5, 4)).astype("float32")
    aware(rows, training=True)
    layer, plain = aware.get_layer("memory"), model.get_layer("memory")
    for name in ("kernel", "recurrent_kernel"):
        kernel = getattr(plain.cell, name).numpy()
        getattr(plain.cell, name).assign(by_channel(kernel, (0,)))
    expected = model(within(rows, layer.input_quantizer_0.range()))
    np.testing.assert_allclose(aware(rows), within(np.asarray(expected), layer.output_quantizer.range()), atol=1e-5)


def test_a_network_by_hand():
    """The integers of the kernels, and of every activation that files have, with the norm folded into the first kernel."""
    model = network()
    aware = trained(training.quantization_aware(model, "full_int8"), epochs=3)
    first, depthwise, norm = (aware.get_layer(name) for name in ("first", "depthwise", "norm"))
    factor = (norm.gamma / np.sqrt(norm.moving_variance + norm.epsilon)).numpy().astype("float64")
    offset = norm.beta.numpy() - norm.moving_mean.numpy() * factor
    # Integers of the folded kernel are those of the kernel: the factor is in the scales.
    folded = by_channel(weight(first, "kernel").numpy() * factor, (0, 1, 2))
    x = convolved(within(IMAGES, first.input_quantizer_0.range()), folded, "SAME") + offset
    x = within(np.clip(x, 0, 6), aware.get_layer("rectifier").output_quantizer.range())
    kernel = by_channel(weight(depthwise, "kernel").numpy().astype("float64"), (0, 1))
    channels = [convolved(x[..., [c]], kernel[:, :, [c]], "VALID") for c in range(4)]
    x = within(np.concatenate(channels, -1) + depthwise.bias.numpy(), depthwise.preactivation_quantizer.range())
    x = within(x / (1 + np.exp(-x)), depthwise.output_quantizer.range())
    x = x.reshape(16, 3, 2, 3, 2, 4).max((2, 4)).reshape(16, -1)
    logits = aware.get_layer("logits")
    kernel = by_channel(weight(logits, "kernel").numpy().astype("float64"), (0,))
    expected = within(x @ kernel + logits.bias.numpy(), logits.output_quantizer.range())
    found = aware.predict(IMAGES, verbose=0)
    step = np.ptp(logits.output_quantizer.range()) / 255
    assert np.isclose(found, expected, atol=1e-4).mean() > 0.9  # But for ties.
    np.testing.assert_allclose(found, expected, atol=1.1 * step)
    assert np.abs(found - training.learned_model(aware).predict(IMAGES, verbose=0)).max() > 0.1 * step


def convolved(x, kernel, padding):
    return np.asarray(ops.conv(ops.cast(x, "float64"), ops.cast(kernel, "float64"), padding=padding.lower()))


def test_the_ordinary_model_has_the_rounded_weights():
    model = network()
    aware = trained(training.quantization_aware(model, "full_int8"))
    plain = training.learned_model(aware)
    assert type(plain) is type(model)
    assert [each.path for each in plain.weights] == [each.path for each in model.weights]
    for name, axes in (("first", (0, 1, 2)), ("depthwise", (0, 1)), ("logits", (0,))):
        kernel = weight(aware.get_layer(name), "kernel").numpy()
        np.testing.assert_allclose(plain.get_layer(name).kernel, by_channel(kernel, axes), atol=1e-6)
        assert np.abs(plain.get_layer(name).kernel - kernel).max() > 1e-4
        assert np.abs(kernel - model.get_layer(name).kernel).max() > 1e-3  # It was trained.
    seen = []
    with observed(aware, lambda quantizer, x: seen.append(quantizer)):
        np.testing.assert_allclose(aware(IMAGES), plain(IMAGES), atol=1e-5)
    assert len(seen) == 5
    assert np.abs(aware(IMAGES) - plain(IMAGES)).max() > 1e-3


@pytest.mark.exhaustive
def test_a_file_resumes_where_training_was(tmp_path):
    whole = trained(training.quantization_aware(network(), "full_int8"), epochs=3)
    model = trained(training.quantization_aware(network(), "full_int8"), epochs=2)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0))
    loaded.fit(IMAGES, LABELS, batch_size=8, epochs=1, shuffle=False, verbose=0)
    assert len(loaded.weights) == len(whole.weights)
    for resumed, each in zip(loaded.weights, whole.weights, strict=True):
        np.testing.assert_allclose(resumed, each, atol=1e-5, err_msg=each.path)
        assert resumed.trainable == each.trainable
    assert rounded(loaded) == rounded(whole)


def test_compiled_training_is_eager_training():
    eager = trained(training.quantization_aware(network(), "full_int8"))
    compiled = trained(training.quantization_aware(network(), "full_int8"), run_eagerly=False, jit_compile=True)
    for ours, theirs in zip(compiled.weights, eager.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3, err_msg=theirs.path)
    found = [model.predict(IMAGES, verbose=0) for model in (compiled, eager)]
    assert np.corrcoef(*(each.reshape(-1) for each in found))[0, 1] > 0.999


def test_mixed_precision_rounds_in_float32():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = network()
    finally:
        keras.config.set_dtype_policy(policy)
    aware = trained(training.quantization_aware(model, "full_int8"))
    assert rounded(aware) == rounded(training.quantization_aware(network(), "full_int8"))
    assert {each.compute_dtype for each in integer_layers(aware)} == {"bfloat16"}
    layer = aware.get_layer("first")
    kernel = by_channel(weight(layer, "kernel").numpy(), (0, 1, 2))
    assert keras.backend.standardize_dtype(layer.kernel.dtype) == "bfloat16"
    np.testing.assert_array_equal(layer.kernel, ops.cast(kernel, "bfloat16"))
    plain = training.learned_model(aware)
    np.testing.assert_allclose(plain.get_layer("first")._kernel, kernel, rtol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Own(layers.Layer):
    """A layer that only its author knows."""

    def build(self, input_shape):
        self.matrix = self.add_weight(name="matrix", shape=(input_shape[-1], 4))

    def call(self, inputs):
        return ops.matmul(inputs, self.matrix)


def test_a_layer_of_another_package_is_left_alone_and_named():
    x = keras.Input((3,), name="x")
    y = layers.Dense(3, name="after")(Own(name="own")(layers.Dense(3, name="before")(x)))
    model = keras.Model(x, y)
    with pytest.warns(
        UserWarning, match=r"'own' \(Own\): weights of layers that neither Keras nor keras_transformer has"
    ):
        aware = training.quantization_aware(model, "full_int8")
    assert type(aware.get_layer("own")) is Own
    assert rounded(aware) == {
        "before": ["input_quantizer_0", "output_quantizer"],
        "after": ["input_quantizer_0", "output_quantizer"],
    }


def quantized_by_keras():
    model = network()
    model.quantize("int8")
    return model


def test_errors():
    model = network()
    aware = training.quantization_aware(model, "full_int8")
    for call, message in [
        (lambda: training.quantization_aware(model, "full_int4"), "Unknown schemes='full_int4'"),
        (lambda: training.quantization_aware(model, "full_int8", step="scales_only"), "Unknown step='scales_only'"),
        (lambda: training.quantization_aware(model, "full_int8", activations=4), "activations must be 8 or None"),
        (lambda: training.quantization_aware(aware, "full_int8"), "quantization-aware already"),
        (lambda: training.learned_weights(aware), "not a model of quantization_aware"),
        (lambda: training.learned_weights(model), "not a model of quantization_aware"),
        (lambda: keras.Model(aware.inputs, aware.outputs).get_config(), "quantization_aware on the whole"),
        (lambda: aware.get_layer("logits").enable_lora(2), "takes no adapter"),
        (
            lambda: training.quantization_aware(training.add_lora(network(), rank=1, layers="logits"), "full_int8"),
            "has an adapter",
        ),
        (lambda: training.quantization_aware(quantized_by_keras(), "full_int8"), "is quantized by Keras"),
        (
            lambda: training.quantization_aware(
                keras.Sequential([keras.Input((2,), dtype="int32"), layers.Flatten()]), "full_int8"
            ),
            "no layer that can be quantized",
        ),
    ]:
        with pytest.raises(WeightQuantizationError if "already" in message else ValueError, match=message):
            call()
    assert len(model.weights) == len(network().weights)


UNDER_JAX = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
from keras_transformer import load_model
model = load_model(sys.argv[1])
assert keras.backend.backend() == "jax"
x, y = np.load(sys.argv[2]), np.arange(16) % 3
start = model.predict(x, verbose=0)
model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
np.savez(sys.argv[3], start=start, **{str(i): np.asarray(each) for i, each in enumerate(model.weights)})
"""


@pytest.mark.exhaustive
def test_under_jax(tmp_path):
    """A step on JAX, compiled, is one on TensorFlow."""
    model = trained(training.quantization_aware(network(), "full_int8"), epochs=1)
    paths = [str(tmp_path / name) for name in ("model.keras", "x.npy", "found.npz")]
    model.save(paths[0])
    np.save(paths[1], IMAGES)
    start = model.predict(IMAGES, verbose=0)
    model.fit(IMAGES, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    run = subprocess.run([sys.executable, "-c", UNDER_JAX, *paths], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    with np.load(paths[2]) as found:
        np.testing.assert_allclose(found["start"], start, atol=1e-4)
        for index, each in enumerate(model.weights):
            np.testing.assert_allclose(found[str(index)], each, atol=2e-3, err_msg=each.path)
