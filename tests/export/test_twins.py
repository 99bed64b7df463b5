"""What is exported in place of a model computes what the model computes: adapters, quantized layers, 16 bits."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer import models, tasks
from keras_transformer.export import ParityError, Report, export, load
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.export.spec.twins import merged_twin

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
X = np.random.default_rng(0).normal(size=(5, 12)).astype("float32")
# Each of three layers rounds its activations to integers of 8 bits, and its outputs to bfloat16.
EIGHT_BITS = 3 * (1 / 127 + 2**-8)
TOKENS = np.random.default_rng(0).integers(0, 20, (5, 7)).astype("int32")


def with_policy(policy, make):
    keras.utils.set_random_seed(2)
    keras.config.set_dtype_policy(policy)
    try:
        return make()
    finally:
        keras.config.set_dtype_policy("float32")


def dense():
    return keras.Sequential([keras.Input((12,), name="x"), layers.Dense(16, "relu"), layers.Dense(8), layers.Dense(3)])


def table():
    tokens = keras.Input((7,), dtype="int32", name="x")
    return keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(layers.Embedding(20, 8)(tokens))))


def adapted(make, mode=None, policy="float32"):
    """A model with adapters of rank 2 in every layer, which change its outputs as much as its weights do."""
    model = with_policy(policy, make)
    if mode is not None:
        model.quantize(mode)
    for layer in model.layers:
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2, lora_alpha=4)
            b = next(weight for weight in layer.weights if weight.name.endswith("_b"))
            b.assign(np.random.default_rng(1).normal(size=b.shape))
    return model


def outputs(model, inputs):
    return np.asarray(keras.ops.cast(model(inputs, training=False), "float32"))


def distance(got, expected):
    return np.abs(got - expected).max() / np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "int8", "int4"])
@pytest.mark.parametrize(("make", "inputs"), [(dense, X), (table, TOKENS)])
def test_the_files_of_an_adapted_model_compute_what_it_computes(make, inputs, mode, tmp_path):
    model = adapted(make, mode)
    export(model, tmp_path / "bundle", formats=["tflite", "onnx"], progress=False)
    for name in ("tflite", "onnx"):
        (found,) = load(tmp_path / "bundle", name)({"x": inputs}).values()
        assert distance(found, outputs(model, inputs)) < 1e-6, name


def test_the_adapters_of_float_layers_are_merged_and_those_of_quantized_ones_stay():
    for make, inputs in ((dense, X), (table, TOKENS)):
        model = adapted(make)
        twin = merged_twin(model)
        assert len(twin.weights) == len(make().weights)
        assert distance(outputs(twin, inputs), outputs(model, inputs)) < 1e-6
    quantized = adapted(dense, "int8")
    assert merged_twin(quantized) is quantized


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize(("make", "inputs"), [(dense, X), (table, TOKENS)])
def test_adapters_beside_quantized_layers_go_into_float32_with_their_alpha(make, inputs, mode):
    model = adapted(make, mode, "mixed_bfloat16")
    twin = float32_twin(model)
    assert {layer.compute_dtype for layer in twin.layers} <= {"float32", "int32"}
    assert 0 < distance(outputs(twin, inputs), outputs(model, inputs)) < EIGHT_BITS
    for layer in twin.layers:
        if getattr(layer, "lora_enabled", False):
            layer.lora_alpha = 2  # What a layer built from its config has.
    assert distance(outputs(twin, inputs), outputs(model, inputs)) > 0.1


@pytest.mark.slow
def test_quantized_layers_share_no_constant_that_onnx_runtime_refuses(tmp_path):
    model = with_policy("float32", dense)
    model.quantize("int8")
    export(model, tmp_path / "bundle", formats=["onnx"], progress=False)
    (found,) = load(tmp_path / "bundle")({"x": X}).values()
    assert distance(found, outputs(model, X)) < 1e-6


def stated(model, folder, formats=("onnx",)):
    """The report of an export, and the record of the twin in the manifest."""
    report = export(model, folder, formats=list(formats), progress=False)
    return report, read_manifest(folder).twin


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "steps", "least", "most"),
    [
        (lambda: adapted(dense), ["merged adapters"], 0, 1e-6),
        (lambda: with_policy("mixed_bfloat16", dense), ["float32 in place of bfloat16"], 1e-4, 0.02),
        (lambda: with_policy("mixed_float16", dense), ["float32 in place of float16"], 1e-5, 0.003),
        (
            lambda: adapted(dense, None, "mixed_bfloat16"),
            ["merged adapters", "float32 in place of bfloat16"],
            1e-4,
            0.02,
        ),
        (lambda: adapted(dense, "int8", "mixed_bfloat16"), ["float32 in place of bfloat16"], 1e-4, EIGHT_BITS),
    ],
)
def test_the_report_says_how_far_the_exported_model_is_from_the_one_handed_over(make, steps, least, most, tmp_path):
    model = make()
    report, record = stated(model, tmp_path / "bundle")
    assert record == report.twin
    assert list(record.steps) == steps
    assert least <= record.largest.ratio <= most
    assert record.share <= 0.7
    assert [line.split()[0] for line in str(report).splitlines()[1:4]] == ["format", "twin", "onnx"]
    assert f"twin: {', '.join(steps)}" in str(report)
    assert Report.from_dict(report.to_dict()) == report


@pytest.mark.slow
def test_a_model_that_is_exported_itself_has_no_twin(tmp_path):
    report, record = stated(adapted(dense, "int8"), tmp_path / "bundle")
    assert report.twin is None
    assert record is None


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_twin_that_computes_something_else_is_refused_by_its_name(policy, monkeypatch, tmp_path):
    """As of adapters that Keras had quantized with other scales, which files and twin had in common."""
    from keras_transformer.training import adapters

    merged = adapters.merged_values
    monkeypatch.setattr(
        adapters, "merged_values", lambda model: {name: 1.3 * value for name, value in merged(model).items()}
    )
    with pytest.raises(ParityError, match="^merged adapters.*: output .* differs from Keras by"):
        export(adapted(dense, None, policy), tmp_path / "bundle", formats=["onnx"], progress=False)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_language_model_and_its_float32_twin_read_prompts_alike(policy, tmp_path):
    make = lambda: tasks.LanguageModel(models.Decoder(models.Size(2, 16, 2, 32), 50))  # noqa: E731
    _, record = stated(with_policy(policy, make), tmp_path / "bundle")
    assert {each.signature for each in record.parity} == {"prefill"}
    assert 0 < record.largest.ratio < 0.03
