"""Plants faults in graphs that are written, and compares the files with the sound model: `planted_worker.py DIRECTORY`.

Writes `results.json`: for each case the error, or None, and for sound files the largest share of what is allowed.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import sys
import tempfile

import keras
import numpy as np

from keras_transformer import models, positions, tasks
from keras_transformer.export import ExportOptions, GenerationOptions, ParityError, api
from keras_transformer.export.bundle.manifest import new_manifest
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.request import Request
from keras_transformer.export.saved_model.convert import write
from keras_transformer.export.spec.probing.graph_probes import add_graph_probes
from keras_transformer.export.verification.outputs import verify_format
from keras_transformer.export.verification.rounding import measure_rounding

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
    return tasks.SpanAnswerer(backbone)


def detector():
    backbone = models.Encoder(SIZE, vocabulary_size=300, max_sequence_length=LENGTH, position="sinusoidal")
    return tasks.ReplacedTokenDetector(backbone)


def decoder():
    rotary = positions.Rotary(10000.0)
    return tasks.LanguageModel(models.Decoder(SIZE, 300, position=rotary, norm="rms_norm"))


def translator():
    return tasks.LanguageModel(models.Transformer(SIZE._replace(num_layers=1), 300))


def unequal_blocks():
    """One output of rows of scale 1e6 and rows of scale 1."""
    x = keras.Input((4, 32), name="x")
    small = keras.layers.Dense(32, activation="tanh", name="small")(x)
    large = keras.layers.Rescaling(1e6)(keras.layers.Dense(32, name="large")(x))
    return keras.Model(x, {"both": keras.layers.Concatenate(axis=1, name="both")([large, small])})


def pictures():
    """A network of a user: its pixels are between 0 and 255."""
    wide = {"kernel_initializer": keras.initializers.VarianceScaling(50.0), "activation": "relu"}
    x = keras.Input((16, 16, 3), name="pictures")
    h = keras.layers.Conv2D(8, 3, padding="same", name="convolution", **wide)(keras.layers.Rescaling(1 / 255)(x))
    h = keras.layers.Conv2D(16, 3, strides=2, padding="same", **wide)(h)
    h = keras.layers.Dense(32, name="wide", **wide)(keras.layers.Flatten()(h))
    return keras.Model(x, keras.layers.Dense(5, name="classes")(h))


def measurements():
    """A network of numbers of which nothing is said, and of some around a mean of 20,000."""
    free, prices = keras.Input((12,), name="free"), keras.Input((3,), name="prices")
    h = keras.layers.Concatenate()([free, keras.layers.Normalization(mean=2e4, variance=1e6)(prices)])
    h = keras.layers.Dense(64, activation="relu", name="wide")(h)
    return keras.Model([free, prices], keras.layers.Dense(3, name="scores")(h))


def sequences():
    x = keras.Input((None, 6), name="frames")
    h = keras.layers.Conv1D(16, 3, padding="causal", activation="relu")(x)
    return keras.Model(x, keras.layers.Dense(8, name="states")(h))


def resized():
    """A network that resizes what it makes of pictures, as one for segments does."""
    x = keras.Input((16, 16, 3), name="pictures")
    h = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x)
    h = keras.layers.UpSampling2D(3, interpolation="bilinear", name="resized")(h)
    return keras.Model(x, keras.layers.Dense(4, name="segments")(h))


def sensors():
    """A network of measurements some of which are missing."""
    x = keras.Input((12,), name="measured")
    missing = keras.ops.cast(keras.ops.isnan(x), "float32")
    known = keras.layers.Concatenate()([keras.ops.where(keras.ops.isfinite(x), x, 0.0), missing])
    return keras.Model(x, keras.layers.Dense(3, name="scores")(known))


@functools.cache
def sound(make):
    """A model and its spec, with references and their rounding."""
    keras.utils.set_random_seed(0)
    model = randomized(make())
    steps = GenerationOptions(whole_graph=False, prefill_buckets=())
    options = ExportOptions(generation=steps if isinstance(model, tasks.LanguageModel) else None)
    request = Request(pathlib.Path(), ["saved_model"], [None], options=options)
    spec = api.model_spec(model, request).only(["saved_model"])
    traced = TracedModule(spec)
    add_graph_probes(spec, traced)
    measure_rounding(traced, spec)
    return model, spec


def verified(spec):
    """The parity of what the functions of a spec compute now with the references."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = write(TracedModule(spec), spec, folder)
        manifest = new_manifest(spec, {}).with_artifact("saved_model", ArtifactRecord(files, size=0))
        probes = {name: signature.all_probes for name, signature in spec.signatures.items()}
        return verify_format(folder, "saved_model", probes, None, manifest)


def with_functions(spec, change):
    """A spec whose functions are changed: `change` maps tensors and the function to outputs."""
    signatures = {
        name: dataclasses.replace(each, function=lambda tensors, own=each.function: change(dict(tensors), own))
        for name, each in spec.signatures.items()
    }
    return dataclasses.replace(spec, signatures=signatures)


def of_signatures(change):
    """A fault of what all signatures do with their inputs and outputs."""

    @contextlib.contextmanager
    def planted(model, spec):
        yield with_functions(spec, change)

    return planted


def of_weight(find, change):
    """A fault of the first weight that is found."""

    @contextlib.contextmanager
    def planted(model, spec):
        weight = next(each for each in model.weights if find(each))
        value = np.asarray(weight)
        weight.assign(change(value.copy()))
        try:
            yield spec
        finally:
            weight.assign(value)

    return planted


def of_attribute(find, name, change):
    """A fault of an attribute of the first layer that is found."""

    @contextlib.contextmanager
    def planted(model, spec):
        layer = next(each for each in model._flatten_layers() if find(each))
        value = getattr(layer, name)
        object.__setattr__(layer, name, change(value))
        try:
            yield spec
        finally:
            object.__setattr__(layer, name, value)

    return planted


def of_result(name, change):
    """A fault of what a layer computes."""

    @contextlib.contextmanager
    def planted(model, spec):
        layer = model.get_layer(name)
        call = layer.call
        object.__setattr__(layer, "call", lambda x, **options: change(call(x)))
        try:
            yield spec
        finally:
            object.__delattr__(layer, "call")

    return planted


def of_check(name, tells=keras.ops.zeros_like):
    """A fault of an operation that tells NaN or infinities from numbers: it tells none."""

    @contextlib.contextmanager
    def planted(model, spec):
        operations = keras.src.backend.numpy
        check = getattr(operations, name)
        setattr(operations, name, lambda x: tells(x, dtype="bool"))
        try:
            yield spec
        finally:
            setattr(operations, name, check)

    return planted


@contextlib.contextmanager
def one_sided_padding(model, spec):
    """A convolution that pads after the picture alone."""
    layer = model.get_layer("convolution")
    call = layer.call
    object.__setattr__(layer, "padding", "valid")
    object.__setattr__(layer, "call", lambda x, **options: call(keras.ops.pad(x, [[0, 0], [0, 2], [0, 2], [0, 0]])))
    try:
        yield spec
    finally:
        object.__delattr__(layer, "call")
        object.__setattr__(layer, "padding", "same")


def of_input(name, change):
    """A fault of what is made of an input."""
    return of_signatures(lambda tensors, function: function(tensors | {name: change(tensors[name])}))


def of_sizes(axis, is_wrong):
    """A fault of outputs of some sizes of an axis."""

    def changed(tensors, function):
        outputs = function(tensors)
        wrong = keras.ops.cast(is_wrong(keras.ops.shape(next(iter(tensors.values())))[axis]), "float32")
        return {name: value * (1 + 1e-3 * wrong) for name, value in outputs.items()}

    return of_signatures(changed)


def one_in_a_thousand(x):
    """A relative change of one value in a thousand."""
    wrong = keras.ops.cast(keras.ops.round(x * 1e4), "int32") % 1000 == 7
    return keras.ops.where(wrong, x * 1.01, x)


def masks(change):
    """A fault of all inputs that are masks."""

    def changed(tensors, function):
        return function({name: change(each) if "mask" in name else each for name, each in tensors.items()})

    return of_signatures(changed)


def late(x):
    """Which positions of the last axis are beyond 64."""
    return keras.ops.arange(keras.ops.shape(x)[-1]) >= 64


def changed_beyond_64(tensors, function):
    outputs = function(tensors)
    name = next(iter(outputs))
    values = outputs[name]
    beyond = keras.ops.cast(keras.ops.arange(keras.ops.shape(values)[1]) >= 64, values.dtype)
    return outputs | {name: values * (1 + 1e-4 * beyond)}


def late_slot_before(tensors, function):
    """The slot before the right one, of steps beyond the tenth."""
    if "cache_index" in tensors:
        index = tensors["cache_index"]
        tensors["cache_index"] = index - keras.ops.cast(index > 10, index.dtype)
    return function(tensors)


def late_tokens_of_a_step(tensors, function):
    """Other tokens beyond the 64th that one step reads."""
    if "cache_index" in tensors:
        tokens = tensors["token_ids"]
        tensors["token_ids"] = keras.ops.where(late(tokens), keras.ops.zeros_like(tokens), tokens)
    return function(tensors)


def late_words_of_a_source(tensors, function):
    """Other tokens beyond the 64th of a source."""
    return function(
        {
            name: keras.ops.where(late(each), keras.ops.zeros_like(each), each) if name == "source_token_ids" else each
            for name, each in tensors.items()
        }
    )


def long_sources_cut(tensors, function):
    """What the decoder sees of a source beyond its 64th token."""
    tensors = dict(tensors)
    if "cache_index" in tensors:
        for name in tensors:
            if "mask" in name:
                tensors[name] = tensors[name] & ~late(tensors[name])
    return function(tensors)


def last_row(value):
    value[-1] *= 1.001
    return value


def zeroed(value):
    value[20:64] = 0
    return value


def table(word):
    return lambda weight: word in weight.path and weight.shape[0] > 100


MASKS = {
    "no mask": masks(keras.ops.ones_like),
    "inverted mask": masks(keras.ops.logical_not),
    "no mask beyond 64": masks(lambda mask: mask | late(mask)),
    "mask taken for lengths": masks(
        lambda mask: keras.ops.arange(keras.ops.shape(mask)[1]) < keras.ops.sum(mask, axis=1, keepdims=True)
    ),
    "changed beyond 64": of_signatures(changed_beyond_64),
}
BATCHES = {
    "batch of 2": of_sizes(0, lambda size: size == 2),
    "batch of 4": of_sizes(0, lambda size: size == 4),
    "batch of 7": of_sizes(0, lambda size: size == 7),
    "batches over 5": of_sizes(0, lambda size: size > 5),
    "batches of multiples of 8": of_sizes(0, lambda size: size % 8 == 0),
}
FAULTS = {
    pictures: BATCHES
    | {
        "pixels clipped": of_input("pictures", lambda x: keras.ops.clip(x, -4.5, 4.5)),
        "white pixels": of_input("pictures", lambda x: keras.ops.minimum(x, 254.0)),
        "clipped at 6": of_result("wide", lambda x: keras.ops.minimum(x, 6.0)),
        "clipped at 50": of_result("wide", lambda x: keras.ops.minimum(x, 50.0)),
        "one-sided padding": one_sided_padding,
    },
    measurements: BATCHES
    | {
        "numbers clipped": of_input("free", lambda x: keras.ops.clip(x, -4.5, 4.5)),
        "clipped at 6": of_result("wide", lambda x: keras.ops.minimum(x, 6.0)),
        "clipped at 50": of_result("wide", lambda x: keras.ops.minimum(x, 50.0)),
        "prices clipped": of_input("prices", lambda x: keras.ops.minimum(x, 1e4)),
        "small values flushed": of_input("free", lambda x: keras.ops.where(keras.ops.abs(x) < 1e-4, 0.0, x)),
    },
    sequences: BATCHES
    | {
        "lengths of multiples of 8": of_sizes(1, lambda size: size % 8 == 0),
        "length of 1": of_sizes(1, lambda size: size == 1),
        "length of 33": of_sizes(1, lambda size: size == 33),
        "one value in a thousand": of_result("states", one_in_a_thousand),
    },
    sensors: {
        "no number is NaN": of_check("isnan"),
        "every number is finite": of_check("isfinite", keras.ops.ones_like),
        "NaN is 1": of_input("measured", lambda x: keras.ops.where(keras.ops.isnan(x), 1.0, x)),
        "infinities are large": of_input("measured", lambda x: keras.ops.clip(x, -1e30, 1e30)),
    },
    resized: {
        "coordinates moved": of_result("resized", lambda x: x + 1e-4 * (keras.ops.roll(x, 1, axis=2) - x)),
        "numbers scaled": of_result("resized", lambda x: x * (1 + 2e-5)),
    },
    encoder: MASKS
    | {
        "positions zeroed": of_weight(table("position"), zeroed),
        "last position": of_weight(table("position"), last_row),
        "last word": of_weight(table("token_embedding"), last_row),
        "norm": of_weight(lambda weight: "norm" in weight.path, lambda value: value * 1.001),
        "epsilon": of_attribute(
            lambda layer: isinstance(layer, keras.layers.LayerNormalization), "epsilon", lambda value: 1.5 * value
        ),
        "activation": of_attribute(
            lambda layer: str(getattr(layer, "path", "")).endswith("hidden"),
            "activation",
            lambda value: lambda x: keras.activations.gelu(x, approximate=True),
        ),
    },
    detector: MASKS,
    decoder: {
        "late slot before": of_signatures(late_slot_before),
        "late tokens of a step": of_signatures(late_tokens_of_a_step),
    },
    translator: {
        "no mask": MASKS["no mask"],
        "no mask beyond 64": MASKS["no mask beyond 64"],
        "mask taken for lengths": MASKS["mask taken for lengths"],
        "long sources cut": of_signatures(long_sources_cut),
        "late words of a source": of_signatures(late_words_of_a_source),
    },
    unequal_blocks: {
        "small block": of_weight(lambda weight: weight.path == "small/kernel", lambda value: value * 1.0001),
    },
}


def main(directory, *names):
    results = {}
    for make, faults in FAULTS.items():
        if make.__name__ not in names:
            continue
        model, spec = sound(make)
        results[make.__name__] = {"sound": max(each.share for each in verified(spec))}
        for name, plant in faults.items():
            try:
                with plant(model, spec) as planted:
                    verified(planted)
                found = None
            except ParityError as error:
                found = str(error)
            results[make.__name__][name] = found
        sound.cache_clear()
        (directory / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
