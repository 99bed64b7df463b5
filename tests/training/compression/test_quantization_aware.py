"""Quantization-aware training: the rounding, its gradients, and that exported integers are those that were trained."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks, training
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.quantization import QuantizedWeights, WeightQuantizationError, WeightScheme, quantize_weights
from keras_transformer.quantization.kernels import kernels_of
from keras_transformer.quantization.rounding import half
from keras_transformer.training.compression.fake_quantization import (
    LEAST,
    fake_quantized,
    learned_step,
    stored_minimum,
    stored_scale,
)
from keras_transformer.training.compression.quantized_layers import quantized_layers
from keras_transformer.training.compression.quantizers import InputQuantizer, WeightQuantizer

SCHEMES = [WeightScheme(8, None), WeightScheme(4, None), WeightScheme(3, 32), WeightScheme(2, 32, has_minimum=True)]
IDS = np.random.default_rng(0).integers(1, 40, (4, 6)).astype("int32")
INPUTS = {"token_ids": IDS, "padding_mask": IDS > 3}
ROWS = np.random.default_rng(1).normal(size=(4, 64)).astype("float32")
LABELS = np.arange(4)


def language_model(**options):
    keras.utils.set_random_seed(2)
    backbone = models.Decoder(models.Size(1, 64, 2, 32), vocabulary_size=40, max_sequence_length=8)
    return tasks.LanguageModel(backbone, **options)


def dense(units=64, name="wide"):
    keras.utils.set_random_seed(2)
    layers = [keras.Input((64,)), keras.layers.Dense(units, name=name), keras.layers.Dense(4, name="small")]
    return keras.Sequential(layers, name="model")


def trained(model, inputs, labels, epochs=2, optimizer=None, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # A few steps of a tiny model take less time than tracing it.
    model.compile(optimizer or keras.optimizers.Adam(0.01), loss, **{"run_eagerly": True, **options})
    model.fit(inputs, labels, epochs=epochs, shuffle=False, verbose=0)
    return model


def used(kernel):
    """What the forward pass computes with, as rows."""
    array = np.asarray(kernel.layer.embeddings if kernel.is_table else kernel.layer.kernel)
    return array.reshape(-1, kernel.width) if kernel.is_table else array.reshape(kernel.width, -1).T


def step_gradient(x, step, lowest, highest):
    """Equation 3 of Esser et al. for each number, float64."""
    ratio = x / step
    return np.where(ratio <= lowest, lowest, np.where(ratio >= highest, highest, np.round(ratio) - ratio))


@pytest.mark.parametrize(("lowest", "highest"), [(-2, 1), (-8, 7), (0, 15)])
@pytest.mark.parametrize("axis", [1, 2])
def test_value_and_gradients_are_those_of_the_paper(lowest, highest, axis):
    generator = np.random.default_rng(highest + axis)
    x, upstream = generator.normal(size=(2, 3, 5, 7))[:, :, :, 0], generator.normal(size=(2, 3, 5))
    step = 0.1 + generator.random([1 if each == axis else size for each, size in enumerate(x.shape)]) / highest
    value, pullback = vjp(
        lambda x, step: fake_quantized(x, step, lowest, highest, axis),
        *(keras.ops.cast(each, "float32") for each in (x, step)),
    )
    np.testing.assert_allclose(value, np.clip(np.round(x / step), lowest, highest) * step, rtol=1e-6)
    of_x, of_step = (np.asarray(each) for each in pullback(keras.ops.cast(upstream, "float32")))
    inside = (x / step > lowest) & (x / step < highest)
    assert 0 < inside.sum() < inside.size
    np.testing.assert_allclose(of_x, upstream * inside, rtol=1e-6)
    expected = (upstream * step_gradient(x, step, lowest, highest)).sum(axis, keepdims=True)
    np.testing.assert_allclose(of_step, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheme", [WeightScheme(4, None), WeightScheme(3, 32)])
def test_gradient_descent_moves_the_step_as_in_the_paper(scheme):
    """With the gradient scale 1 / sqrt(N Q), section 2.2; the step of a file is that of training."""
    initial = np.array([0.25, 0.03125, 2.0], "float32")  # Exact in files.
    relative, gradient, rate = np.ones(3, "float32"), np.array([0.5, -0.25, 0.125], "float32"), 0.01
    size = scheme.block_size or 64
    scale = 1 / np.sqrt(size * scheme.highest)
    value, pullback = vjp(lambda x: learned_step(x, initial, scheme, scale), keras.ops.convert_to_tensor(relative))
    np.testing.assert_array_equal(value, initial)
    (of_relative,) = pullback(keras.ops.convert_to_tensor(gradient))
    moved = (relative - rate * np.asarray(of_relative)) * initial
    np.testing.assert_allclose(moved, initial - rate * scale * gradient, rtol=1e-6)
    layer = WeightQuantizer((64, 3), 1, scheme, "learned")
    assert layer._gradient_scale == pytest.approx(scale)


def test_scales_and_minima_have_the_precision_of_files():
    generator = np.random.default_rng(5)
    scales = np.exp(generator.uniform(np.log(LEAST), 3, 20000)).astype("float32")
    for scheme in (WeightScheme(4, 32), WeightScheme(4, None)):
        np.testing.assert_array_equal(stored_scale(scales, scheme), scheme.round_scale(scales))
    assert np.asarray(stored_scale(np.array([-1.0, 0.0, 1e-9], "float32"), WeightScheme())).tolist() == [LEAST] * 3
    minima = np.concatenate([scales, -scales])
    minima = minima[np.abs(minima) >= 2.0**-14]
    np.testing.assert_array_equal(stored_minimum(minima), half(minima))


@pytest.mark.parametrize("shape_and_inputs", [((64, 4, 8), 1), ((4, 16, 24), 2), ((24, 64), 0)])
@pytest.mark.parametrize("scheme", [WeightScheme(4, None), WeightScheme(2, 32, has_minimum=True)])
def test_initial_steps(shape_and_inputs, scheme):
    shape, contracted = shape_and_inputs
    weight = np.random.default_rng(3).normal(size=shape).astype("float32")
    width = 64
    rows = weight.reshape(-1, width) if contracted == 0 else weight.reshape(width, -1).T
    layer = WeightQuantizer(shape, contracted, scheme, "learned")
    layer.build()
    layer.initialize(rows, "mean")
    blocked = rows.reshape(len(rows), -1, scheme.block_size or width).astype("float64")
    lowest = half(blocked.min(-1)) if scheme.has_minimum else np.zeros(blocked.shape[:2])
    expected = 2 * np.abs(blocked - lowest[..., None]).mean(-1) / np.sqrt(scheme.highest)
    blocks = layer.blocks(weight)
    np.testing.assert_allclose(blocks.scale, expected, rtol=2**-8)
    q = np.clip(
        np.round((blocked - lowest[..., None]) / blocks.scale[..., None].astype("float64")),
        scheme.lowest,
        scheme.highest,
    )
    assert (blocks.codes.astype(int) - blocks.zero == q).mean() > 0.999  # But for ties.
    # The other default: what rounding after training would choose.
    layer.initialize(rows, "least_squares")
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(len(rows) * 2, name="layer", use_bias=False)])
    model.get_layer("layer").kernel.assign(np.concatenate([rows, rows]).T)
    (rounded,) = quantize_weights(model, {"*": scheme}).values()
    np.testing.assert_array_equal(layer.blocks(weight).codes, rounded.codes[: len(rows)])
    np.testing.assert_allclose(layer.blocks(weight).scale, rounded.scale[: len(rows)], rtol=1e-6)


@pytest.mark.parametrize(
    ("scheme", "step"),
    [*((scheme, "learned") for scheme in SCHEMES), *((scheme, "straight_through") for scheme in SCHEMES[1::2])],
)
def test_files_get_the_very_numbers_of_the_forward_pass(scheme, step):
    model = training.quantization_aware(language_model(), {"*": scheme}, step=step)
    before = {path: blocks.codes for path, blocks in training.learned_weights(model).items()}
    trained(model, INPUTS, IDS, epochs=2)
    weights = training.learned_weights(model)
    kernels = {kernel.path: kernel for kernel in kernels_of(model)}
    assert set(weights) == set(kernels)
    assert len(weights) == 7  # Four of attention, two of the feed-forward, the table, which is the head too.
    for path, blocks in weights.items():
        np.testing.assert_array_equal(blocks.values, used(kernels[path]), err_msg=path)
        assert int(blocks.codes.min()) - blocks.zero >= scheme.lowest
        assert int(blocks.codes.max()) - blocks.zero <= scheme.highest
        assert (blocks.codes != before[path]).any(), path
        np.testing.assert_array_equal(blocks.scale.astype("float32"), scheme.round_scale(blocks.scale))
    plain = training.learned_model(model)
    assert type(plain) is tasks.LanguageModel
    assert [weight.path for weight in plain.weights] == [weight.path for weight in language_model().weights]
    for kernel in kernels_of(plain):
        np.testing.assert_array_equal(kernel.rows(), weights[kernel.path].values)
    assert plain.quantized_weights[path].values.shape == weights[path].values.shape
    np.testing.assert_allclose(plain.predict(INPUTS, verbose=0), model.predict(INPUTS, verbose=0), atol=1e-5)


def test_training_makes_up_for_two_bits():
    """A linear map of inputs with 16 free directions: of the many kernels that are right, training finds one of 2 bits."""
    generator = np.random.default_rng(7)
    x = (generator.normal(size=(256, 16)) @ generator.normal(size=(16, 64)) / 4).astype("float32")
    kernel = generator.normal(size=(64, 64)).astype("float32") / 8
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, use_bias=False)])
    model.layers[0].kernel.assign(kernel)
    aware = training.quantization_aware(model, WeightScheme(2, None))
    aware.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=True)
    rounded = aware.evaluate(x, x @ kernel, verbose=0)
    aware.fit(x, x @ kernel, epochs=40, batch_size=64, verbose=0)
    fitted = aware.evaluate(x, x @ kernel, verbose=0)
    assert rounded > 0.02
    assert fitted < rounded / 4
    plain = training.learned_model(aware)
    np.testing.assert_allclose(plain.predict(x, verbose=0), aware.predict(x, verbose=0), atol=1e-4)
    steps = [weight for weight in aware.trainable_weights if weight.name == "relative_step"]
    assert np.ptp(steps[0].numpy()) > 0.01


def the_blocks(model):
    (blocks,) = training.learned_weights(model).values()
    return blocks


@pytest.mark.parametrize("scheme", [WeightScheme(4, None), WeightScheme(3, 32), WeightScheme(2, 32, has_minimum=True)])
def test_scales_alone_are_trained_and_integers_stay(scheme):
    """The gradient of a scale is the sum of those of its weights times their integers; GPTQ's integers are kept."""
    model = dense()
    x = np.random.default_rng(8).normal(size=(64, 64)).astype("float32")
    rounded = quantize_weights(model, {"*wide*": scheme}, "gptq", data=x)["model/wide/kernel"]
    aware = training.quantization_aware(model, {"*wide*": scheme}, step="scales_only")
    np.testing.assert_array_equal(the_blocks(aware).values, rounded.values)
    assert [weight.name for weight in aware.trainable_weights][:2] == ["bias", "relative_step"]
    before = aware.predict(x, verbose=0)
    layer = aware.get_layer("wide")
    aware.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    aware.fit(x, np.arange(64) % 4, batch_size=64, verbose=0)
    learned = the_blocks(aware)
    np.testing.assert_array_equal(learned.codes, rounded.codes)
    np.testing.assert_array_equal(learned.values, used(kernels_of(aware)[0]))
    # One step of gradient descent, in float64 beside it.
    logits = before.astype("float64")
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    slope = (shares / shares.sum(-1, keepdims=True) - np.eye(4)[np.arange(64) % 4]) / 64
    of_rows = (slope @ dense().get_layer("small").kernel.numpy().T.astype("float64")).T @ x
    q = rounded.codes.astype("float64") - rounded.zero
    of_scale = (of_rows.reshape(q.shape) * q).sum(-1)
    factor = 1 / np.sqrt((scheme.block_size or 64) * scheme.highest)
    moved = np.asarray(layer.weight_quantizer.step).transpose(2, 0, 1)[..., 0] - 1
    first = rounded.scale.astype("float64")
    np.testing.assert_allclose(moved, -0.1 * factor * of_scale / first, rtol=2e-3, atol=1e-6)
    if scheme.has_minimum:
        changed = np.asarray(layer.weight_quantizer.shift).transpose(2, 0, 1)[..., 0]
        np.testing.assert_allclose(changed, -0.1 * first * of_rows.reshape(q.shape).sum(-1), rtol=2e-3, atol=1e-6)
        np.testing.assert_allclose(learned.minimum, rounded.minimum + first * changed, rtol=1e-3, atol=1e-4)


def test_integers_that_were_changed_since_are_rounded_again():
    model = dense()
    known = quantize_weights(model, {"*wide*": WeightScheme(4, 32)}, "clipping", data=ROWS)["model/wide/kernel"]
    kernel = model.get_layer("wide").kernel
    kernel.assign(kernel * 1.01)
    aware = training.quantization_aware(model, {"*wide*": WeightScheme(4, 32)}, step="scales_only")
    found = the_blocks(aware)
    assert (found.scale != known.scale).any()
    np.testing.assert_allclose(found.values, 1.01 * known.values, atol=0.6 * found.scale.max())


def test_activations_of_each_token_and_a_straight_gradient():
    x = np.random.default_rng(4).normal(size=(2, 3, 4, 5))
    x[0, 1] = 0.0
    layer = InputQuantizer(2, "per_token")
    value, pullback = vjp(layer, keras.ops.cast(x, "float32"))
    scale = np.maximum(np.abs(x).max((-2, -1), keepdims=True), 1e-9) / 127
    np.testing.assert_allclose(value, np.round(x / scale) * scale, atol=1e-6)
    upstream = keras.ops.cast(x + 1, "float32")
    np.testing.assert_array_equal(pullback(upstream)[0], upstream)


def test_a_static_range_is_the_average_of_training_batches():
    layer = InputQuantizer(1, "static", momentum=0.75)
    batches = [np.full((2, 3), value, "float32") for value in (2.0, -4.0, 1.0)]
    np.testing.assert_allclose(layer(batches[0]), batches[0], rtol=1e-6)  # Nothing is known before training.
    for batch in batches:
        layer(batch, training=True)
    expected = 0.75 * (0.75 * 2 + 0.25 * 4) + 0.25 * 1
    assert float(layer.largest) == pytest.approx(expected)
    x = np.array([[0.5, -1.0, 100.0]])
    found = np.asarray(layer(x.astype("float32")))
    step = expected / 127
    np.testing.assert_allclose(found, np.clip(np.round(x / step), -127, 127) * step, rtol=1e-6)


@pytest.mark.parametrize("activation_range", ["per_token", "static"])
def test_a_dense_layer_computes_with_integers_on_both_sides(activation_range):
    model = training.quantization_aware(
        dense(), WeightScheme(4, 32), activations=8, activation_range=activation_range, step="straight_through"
    )
    trained(model, ROWS, LABELS, epochs=1)
    layer = model.get_layer("wide")
    largest = np.abs(ROWS).max(-1, keepdims=True) if activation_range == "per_token" else layer.input_quantizer.largest
    scale = np.asarray(largest).astype("float64") / 127
    codes = np.clip(np.round(ROWS / scale), -127, 127)
    kernel = training.learned_weights(model)["wide/kernel"].values.T.astype("float64")
    np.testing.assert_allclose(layer(ROWS), codes * scale @ kernel + layer.bias.numpy(), atol=1e-4)


def test_rows_that_are_looked_up_are_those_of_the_table():
    model = training.quantization_aware(language_model(), {"*embedding*": WeightScheme(2, 32, has_minimum=True)})
    layer = model.backbone.get_layer("token_embedding")
    np.testing.assert_array_equal(np.asarray(layer(IDS)), np.asarray(layer.embeddings)[IDS])
    assert layer.input_quantizer is None


def test_ordinary_layers_of_keras():
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(40, 64, mask_zero=True, name="table")(inputs)
    x = keras.layers.MultiHeadAttention(2, 32, name="attention")(x, x)
    x = keras.layers.EinsumDense("bte,ef->btf", (None, 64), name="product")(x)
    model = keras.Model(inputs, keras.layers.Dense(64, name="head")(x), name="ordinary")
    aware = training.quantization_aware(model, WeightScheme(4, None), activations=8)
    weights = training.learned_weights(trained(aware, IDS, IDS, epochs=1))
    assert len(weights) == 7
    assert weights["table/embeddings"].bits == 8  # Tables have 8 bits by default.
    for kernel in kernels_of(aware):
        np.testing.assert_array_equal(weights[kernel.path].values, used(kernel), err_msg=kernel.path)
    assert [weight.name for weight in model.weights if "step" in weight.name] == []


@pytest.mark.exhaustive
def test_a_file_resumes_where_training_was(tmp_path):
    def made():
        return training.quantization_aware(
            language_model(), WeightScheme(3, 32), activations=8, activation_range="static"
        )

    whole = trained(made(), INPUTS, IDS, epochs=3)
    model = trained(made(), INPUTS, IDS, epochs=2)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]
    np.testing.assert_array_equal(loaded.predict(INPUTS, verbose=0), model.predict(INPUTS, verbose=0))
    assert isinstance(loaded, tasks.LanguageModel)
    loaded.fit(INPUTS, IDS, epochs=1, shuffle=False, verbose=0)
    for resumed, weight in zip(loaded.weights, whole.weights, strict=True):
        np.testing.assert_allclose(resumed, weight, atol=1e-6, err_msg=weight.path)
    configs = [
        {name: value for name, value in each.get_config().items() if name != "model"} for each in (loaded, whole)
    ]
    assert configs[0] == configs[1]


def test_mixed_precision_rounds_in_float32():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = training.quantization_aware(language_model(), {"*": WeightScheme(4, 32)}, activations=8)
    finally:
        keras.config.set_dtype_policy(policy)
    trained(model, INPUTS, IDS, epochs=1)
    weights = training.learned_weights(model)
    for kernel in kernels_of(model):
        quantizer = kernel.layer.weight_quantizer
        assert {weight.dtype for weight in (kernel.variable, *quantizer.weights)} == {"float32"}
        np.testing.assert_array_equal(
            quantizer.rounded(kernel.variable),
            kernel.layer._stored().numpy() * 0
            + (weights[kernel.path].values if kernel.is_table else weights[kernel.path].values.T).reshape(
                kernel.variable.shape
            ),
        )
        computed = kernel.layer.embeddings if kernel.is_table else kernel.layer.kernel
        assert keras.backend.standardize_dtype(computed.dtype) == "bfloat16"


def test_adapters_are_float_beside_frozen_integers(tmp_path):
    model = training.quantization_aware(language_model(), WeightScheme(4, 32))
    integers = training.learned_weights(model)
    training.add_lora(model, rank=2, alpha=6, layers="query$|head$|hidden$")
    trained(model, INPUTS, IDS, optimizer=keras.optimizers.Adam(0.05))
    layer = model.get_layer("decoder_block_0").mixer.query_dense
    assert np.abs(layer.lora_kernel_b).max() > 0.01
    assert {weight.name for weight in model.trainable_weights} == {"lora_kernel_a", "lora_kernel_b"}
    after = training.learned_weights(model)
    for path, blocks in integers.items():
        np.testing.assert_array_equal(after[path].codes, blocks.codes)
    x = np.random.default_rng(6).normal(size=(1, 3, 64)).astype("float32")
    a, b = layer.lora_kernel_a.numpy().reshape(64, 2), layer.lora_kernel_b.numpy().reshape(2, -1)
    base = integers[f"{layer.path}/kernel"].values.T.astype("float64")
    expected = x @ (base + 6 / 2 * a.astype("float64") @ b) + layer.bias.numpy().reshape(-1)
    np.testing.assert_allclose(np.asarray(layer(x)).reshape(1, 3, -1), expected, atol=1e-4)
    outputs = model.predict(INPUTS, verbose=0)
    # Files keep both apart, and so does the ordinary model.
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(INPUTS, verbose=0), outputs)
    assert [each.path for each in loaded.trainable_weights] == [each.path for each in model.trainable_weights]
    plain = training.learned_model(model)
    np.testing.assert_allclose(plain.predict(INPUTS, verbose=0), outputs, atol=1e-5)
    # Merged, they are rounded too.
    training.merge_lora(loaded)
    np.testing.assert_allclose(
        loaded.get_layer("decoder_block_0").mixer.query_dense._kernel.numpy().reshape(64, -1),
        base + 3 * a @ b,
        atol=1e-6,
    )


def test_schemes_by_pattern_and_what_stays_float():
    schemes = {"*attention*": WeightScheme(2, None), "*feedforward*": WeightScheme(4, 32), "*": None}
    model = training.quantization_aware(language_model(), schemes, initial_step="mean")
    assert {path.split("/")[1]: blocks.codes.shape[1] for path, blocks in training.learned_weights(model).items()} == {
        "self_attention": 1,
        "feedforward": 1,
    } or len(training.learned_weights(model)) == 6
    assert len(quantized_layers(model)) == 6


@pytest.mark.exhaustive
def test_the_tokenizer_and_generation_stay(tmp_path):
    from keras_transformer.text import Bytes

    backbone = models.Decoder(models.Size(1, 64, 2, 32), vocabulary_size=260, max_sequence_length=16)
    model = training.quantization_aware(tasks.LanguageModel(backbone, tokenizer=Bytes()), WeightScheme(4, None))
    text = model.generate("ab", max_new_tokens=3)
    model.save(tmp_path / "model.keras")
    assert load_model(tmp_path / "model.keras").generate("ab", max_new_tokens=3) == text
    assert training.learned_model(model).generate("ab", max_new_tokens=3) == text


def test_errors():
    model = dense()
    aware = training.quantization_aware(model, WeightScheme(4, 32))
    for call, message in [
        (lambda: training.quantization_aware(model, activations=4), "activations must be 8 or None"),
        (lambda: training.quantization_aware(model, step="lsq"), "Unknown step='lsq'.*learned"),
        (lambda: training.quantization_aware(model, initial_step="max"), "Unknown initial_step='max'"),
        (
            lambda: training.quantization_aware(model, activations=8, activation_range="token"),
            "Unknown activation_range",
        ),
        (lambda: training.quantization_aware(aware), "quantization-aware already"),
        (lambda: training.quantization_aware(model, WeightScheme(4, 128)), "no whole blocks of 128"),
        (lambda: training.quantization_aware(model, {"*nothing*": WeightScheme()}), "matches none"),
        (lambda: training.learned_weights(model), "not a model of quantization_aware"),
        (lambda: training.learned_model(model), "not a model of quantization_aware"),
        (lambda: keras.Model(aware.inputs, aware.outputs).get_config(), "quantization_aware on the whole"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    adapted = training.add_lora(dense(), rank=1, layers="wide")
    with pytest.raises(WeightQuantizationError, match="has an adapter"):
        training.quantization_aware(adapted)
    assert type(model) is keras.Sequential
    assert len(model.weights) == 4


def test_a_model_without_a_config():
    class Own(keras.Model):
        def __init__(self, width):
            super().__init__()
            self.dense = keras.layers.Dense(width)

        def call(self, inputs):
            return self.dense(inputs)

    model = Own(64)
    model(ROWS)
    with pytest.raises(WeightQuantizationError, match="cannot be rebuilt|no config"):
        training.quantization_aware(model)


UNDER_JAX = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
from keras_transformer import load_model
model = load_model(sys.argv[1])
assert keras.backend.backend() == "jax"
ids = np.load(sys.argv[2])
start = model.predict(ids, verbose=0)
model.fit(ids, ids, epochs=2, shuffle=False, verbose=0)
np.savez(sys.argv[3], start=start, **{str(i): np.asarray(each) for i, each in enumerate(model.weights)})
"""


@pytest.mark.exhaustive
def test_under_jax(tmp_path):
    """A step on JAX, compiled, is one on TensorFlow."""
    keras.utils.set_random_seed(2)
    layers = [keras.Input((6,), dtype="int32"), keras.layers.Embedding(40, 64), keras.layers.Dense(40)]
    model = training.quantization_aware(
        keras.Sequential(layers),
        {"*embeddings": WeightScheme(2, 32, has_minimum=True), "*": WeightScheme(4, None)},
        activations=8,
        activation_range="static",
    )
    paths = [str(tmp_path / name) for name in ("model.keras", "ids.npy", "found.npz")]
    trained(model, IDS, IDS, epochs=0, optimizer=keras.optimizers.SGD(0.05)).save(paths[0])
    np.save(paths[1], IDS)
    start = model.predict(IDS, verbose=0)
    before = [weight.numpy() for weight in model.weights]
    model.fit(IDS, IDS, epochs=2, shuffle=False, verbose=0)
    run = subprocess.run([sys.executable, "-c", UNDER_JAX, *paths], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    with np.load(paths[2]) as found:
        np.testing.assert_allclose(found["start"], start, atol=1e-5)
        for index, (weight, old) in enumerate(zip(model.weights, before, strict=True)):
            # A number at the border of two integers may fall on either side.
            assert np.isclose(found[str(index)], weight, atol=1e-5).mean() > 0.97, weight.path
            assert (old != weight.numpy()).any() != (weight.name == "initial_step"), weight.path


@pytest.mark.exhaustive
def test_recomputed_blocks_and_chunked_losses_train_the_same():
    def model(recompute):
        made = training.quantization_aware(language_model(), WeightScheme(4, 32), activations=8)
        assert not recompute or training.recompute_blocks(made) == 1
        return made

    labels = np.roll(IDS, -1, axis=1)
    plain, recomputed = model(False), model(True)
    optimizer, loss = keras.optimizers.SGD(0.1), training.MaskedCrossentropy()
    plain.compile(optimizer, loss, run_eagerly=True)
    trainer = training.NextTokenTrainer(recomputed, packed=False, chunk_size=5)
    trainer.compile(keras.optimizers.SGD(0.1))
    for each in (plain, trainer):
        each.fit(INPUTS, labels, epochs=1, verbose=0)
    for ours, theirs in zip(plain.weights, recomputed.weights, strict=True):
        assert np.isclose(ours, theirs, atol=1e-5).mean() > 0.97, ours.path
    assert (training.learned_weights(plain)["token_embedding/embeddings"].codes != 128).any()


def test_scales_that_are_wrong_are_trained_right():
    """Scales 5 % too large are found again, with the integers of 2 bits; neither model is changed."""
    teacher = dense()
    known = quantize_weights(teacher, {"*wide*": WeightScheme(2, 32)})
    model = dense()
    wrong = {
        path: blocks._replace(scale=(blocks.scale * 1.05).astype(blocks.scale.dtype)) for path, blocks in known.items()
    }
    QuantizedWeights(wrong).apply(model)
    x = np.random.default_rng(3).normal(size=(32, 64)).astype("float32")
    before = [each.copy() for each in (*model.get_weights(), *teacher.get_weights())]
    trained = training.train_scales(model, teacher, [x], learning_rate=0.02, epochs=60, verbose=0)
    for ours, theirs in zip([*model.get_weights(), *teacher.get_weights()], before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(trained.quantized_weights.values(), known.values(), strict=True):
        np.testing.assert_array_equal(ours.codes, theirs.codes)
    # The logits have a free constant.
    target, away, found = (np.asarray(each(x)) for each in (teacher, model, trained))
    target, away, found = (each - each.mean(-1, keepdims=True) for each in (target, away, found))
    assert np.abs(away - target).max() > 0.04 * np.abs(target).max()
    assert np.abs(found - target).max() < 0.01 * np.abs(target).max()


def test_scales_of_a_model_that_is_not_quantized_are_refused():
    with pytest.raises(WeightQuantizationError, match="call quantization.quantize_weights first"):
        training.train_scales(dense(), dense(), ROWS)
    model = dense()
    quantize_weights(model, {"*wide*": WeightScheme(4, 32)})
    with pytest.raises(WeightQuantizationError, match=r"\(4, 60\)"):
        training.train_scales(model, dense(), ROWS[:, :60])
