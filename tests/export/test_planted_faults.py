"""Faults that are planted into the graph that is written, and must be refused; the reference is that of the sound model."""

import contextlib
import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import models, positions, tasks
from keras_transformer.export import ParityError, api
from keras_transformer.export.bundle import writing
from keras_transformer.export.saved_model.convert import write
from keras_transformer.export.spec.export_spec import ExportSpec
from keras_transformer.export.verification.verify import verify_format

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow writes the files"),
]
SIZE = models.Size(num_layers=4, hidden_dim=32, num_heads=4, intermediate_dim=64)
LENGTH = 128


def randomized(model):
    """A model whose weights are all away from their initial values, norms and biases too."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "float" in str(weight.dtype):
            weight.assign(np.asarray(weight) + rng.normal(scale=0.1, size=weight.shape))
    return model


def encoder():
    backbone = models.Encoder(
        SIZE, vocabulary_size=300, max_sequence_length=LENGTH, position="learned", activation="gelu"
    )
    return randomized(tasks.SpanAnswerer(backbone))


def detector():
    backbone = models.Encoder(SIZE, vocabulary_size=300, max_sequence_length=LENGTH, position="sinusoidal")
    return randomized(tasks.ReplacedTokenDetector(backbone))


def decoder():
    rotary = positions.Rotary(10000.0)
    return randomized(tasks.LanguageModel(models.Decoder(SIZE, 300, position=rotary, norm="rms_norm")))


def unequal_blocks():
    """One output of rows of scale 1e6 and rows of scale 1."""
    x = keras.Input((4, 32), name="x")
    small = keras.layers.Dense(32, activation="tanh", name="small")(x)
    large = keras.layers.Rescaling(1e6)(keras.layers.Dense(32, name="large")(x))
    return randomized(keras.Model(x, {"both": keras.layers.Concatenate(axis=1, name="both")([large, small])}))


def specification(model):
    """The spec of a model with its references and their rounding."""
    from keras_transformer.export.spec.traced import TracedModule
    from keras_transformer.export.verification.rounding import measure_rounding

    spec = api._spec(model, None, None, None, None, None).only(["saved_model"])
    measure_rounding(TracedModule(spec), spec)
    return spec


@pytest.fixture(scope="module")
def specs():
    """The models and their specs by name, each made once."""
    made = {}

    def get(make):
        if make not in made:
            keras.utils.set_random_seed(0)
            model = make()
            made[make] = model, specification(model)
        return made[make]

    return get


def verify(spec: ExportSpec, folder):
    """Writes what the functions of a spec compute now, and compares it with the references."""
    from keras_transformer.export.spec.traced import TracedModule

    traced = TracedModule(spec)
    manifest = writing.new_manifest(spec, None)
    manifest["artifacts"]["saved_model"] = {"signatures": write(traced, spec, folder)}
    probes = {name: signature.probes for name, signature in spec.signatures.items()}
    return verify_format(folder, "saved_model", probes, None, manifest)


def with_functions(spec, change):
    """A spec whose functions are changed: `change` maps tensors and the function to outputs."""
    signatures = {
        name: dataclasses.replace(each, function=lambda tensors, own=each.function: change(dict(tensors), own))
        for name, each in spec.signatures.items()
    }
    return dataclasses.replace(spec, signatures=signatures)


@contextlib.contextmanager
def changed(weight, change):
    """A weight with other values."""
    value = np.asarray(weight)
    weight.assign(change(value.copy()))
    try:
        yield
    finally:
        weight.assign(value)


@pytest.mark.parametrize("make", [encoder, detector, decoder, unequal_blocks])
def test_a_sound_file_is_accepted(specs, tmp_path, make):
    _, spec = specs(make)
    assert max(each.share for each in verify(spec, tmp_path)) <= 0.5


def without_mask(tensors, function):
    tensors["padding_mask"] = keras.ops.ones_like(tensors["padding_mask"])
    return function(tensors)


def inverted_mask(tensors, function):
    tensors["padding_mask"] = keras.ops.logical_not(tensors["padding_mask"])
    return function(tensors)


def changed_beyond_64(tensors, function):
    outputs = function(tensors)
    name = next(iter(outputs))
    values = outputs[name]
    beyond = keras.ops.cast(keras.ops.arange(keras.ops.shape(values)[1]) >= 64, values.dtype)
    return outputs | {name: values * (1 + 1e-4 * beyond)}


@pytest.mark.parametrize("make", [encoder, detector])
@pytest.mark.parametrize("fault", [without_mask, inverted_mask, changed_beyond_64])
def test_a_wrong_mask_or_long_text_is_refused(specs, tmp_path, make, fault):
    _, spec = specs(make)
    with pytest.raises(ParityError, match="differs from Keras"):
        verify(with_functions(spec, fault), tmp_path)


def zeroed(value):
    value[20:64] = 0
    return value


def last_row(value):
    value[-1] *= 1.001
    return value


@pytest.mark.parametrize(
    ("layer", "change"),
    [
        ("position", zeroed),
        ("position", last_row),
        ("token_embedding", last_row),
        ("norm", lambda value: value * 1.001),
    ],
)
def test_a_wrong_table_is_refused(specs, tmp_path, layer, change):
    model, spec = specs(encoder)
    weight = next(each for each in model.weights if layer in each.path and (each.shape[0] > 100 or layer == "norm"))
    with changed(weight, change), pytest.raises(ParityError, match="differs from Keras"):
        verify(spec, tmp_path)


@pytest.mark.parametrize(("attribute", "factor"), [("epsilon", 1.5), ("activation", None)])
def test_a_slightly_wrong_operation_is_refused(specs, tmp_path, monkeypatch, attribute, factor):
    model, spec = specs(encoder)
    layers = [each for each in model._flatten_layers() if hasattr(each, attribute)]
    if attribute == "epsilon":
        layer = next(each for each in layers if isinstance(each, keras.layers.LayerNormalization))
        monkeypatch.setattr(layer, attribute, factor * layer.epsilon)
    else:
        layer = next(each for each in layers if each.path.endswith("hidden"))
        monkeypatch.setattr(layer, attribute, lambda x: keras.activations.gelu(x, approximate=True))
    with pytest.raises(ParityError, match="differs from Keras"):
        verify(spec, tmp_path)


def shifted_slot(tensors, function):
    """The slot after the one that is next, of steps beyond the tenth."""
    if "cache_index" in tensors:
        index = tensors["cache_index"]
        tensors["cache_index"] = index - keras.ops.cast(index > 10, index.dtype)
    return function(tensors)


def test_a_step_at_the_end_of_the_cache_is_compared(specs, tmp_path):
    _, spec = specs(decoder)
    with pytest.raises(ParityError, match="differs from Keras"):
        verify(with_functions(spec, shifted_slot), tmp_path)


def test_a_small_block_beside_a_large_one_is_compared(specs, tmp_path):
    model, spec = specs(unequal_blocks)
    kernel = model.get_layer("small").kernel
    with changed(kernel, lambda value: value * 1.0001), pytest.raises(ParityError, match="output 'both' differs"):
        verify(spec, tmp_path)
