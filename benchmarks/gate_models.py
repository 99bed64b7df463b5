"""The models of `gate_power.py`, and their specs: references, and what rounding moves them by."""

import dataclasses
import pathlib

import keras
import numpy as np

from keras_transformer import models, positions, tasks
from keras_transformer.export import ExportOptions, api
from keras_transformer.export.formats import FORMATS
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.request import Request
from keras_transformer.export.spec.language.spec import GenerationOptions
from keras_transformer.export.spec.probing.graph_probes import add_graph_probes
from keras_transformer.export.verification.rounding import measure_rounding

VOCABULARY = 300
# The steps of a language model. The other signatures are made of the same functions.
STEPS = ("serve", "encode", "prefill", "decode")


def _size(num_layers, width=32):
    return models.Size(num_layers, width, 4, 2 * width)


def _spans():
    return tasks.SpanAnswerer(
        models.Encoder(_size(2), VOCABULARY, max_sequence_length=128, activation="gelu", num_segments=2)
    )


def _grouped():
    rotary = positions.Rotary(10000.0)
    return tasks.LanguageModel(models.Mistral(_size(8), VOCABULARY, window=7, num_key_value_heads=2, position=rotary))


def _pictures():
    """A convolutional network as users write it, with activations above 50."""
    wide = {"kernel_initializer": keras.initializers.VarianceScaling(50.0), "activation": "relu"}
    images = keras.Input((16, 16, 3), name="images")
    x = keras.layers.Rescaling(1 / 255)(images)
    x = keras.layers.Conv2D(8, 3, padding="same", name="edges", **wide)(x)
    x = keras.layers.Conv2D(16, 3, strides=2, padding="same", name="parts", **wide)(x)
    x = keras.layers.Dense(32, name="wide", **wide)(keras.layers.Flatten()(x))
    return keras.Model(images, keras.layers.Dense(5, name="classes")(x))


# From 2 to 64 layers: encoders, decoders, both, images, and a recurrence.
MODELS = {
    "pictures_4": _pictures,
    "spans_2": _spans,
    "t5_3": lambda: tasks.LanguageModel(models.T5(models.T5Size(*_size(3), head_dim=8), VOCABULARY)),
    "detector_4": lambda: tasks.ReplacedTokenDetector(models.Encoder(_size(4), VOCABULARY, position="sinusoidal")),
    "rwkv_3": lambda: tasks.LanguageModel(models.RWKV(_size(3), VOCABULARY)),
    "vit_6": lambda: tasks.ImageClassifier(models.ViT(_size(6), patch_size=4, image_size=16), num_classes=10),
    "grouped_8": _grouped,
    "gpt_16": lambda: tasks.LanguageModel(models.GPT2(_size(16), VOCABULARY, max_sequence_length=128)),
    "decoder_64": lambda: models.Decoder(_size(64), VOCABULARY, position="rotary", norm="rms_norm"),
}

# Inputs that a model does not read: the state of a recurrence is the same in every slot.
UNUSED = {"rwkv_3": ("cache_index",)}


def fresh(model):
    """A model as it is built: most norms are ones, most biases zeros."""
    return model


def randomized(model, scale=0.05):
    """A model whose weights are all away from their initial values, norms and biases too."""
    random = np.random.default_rng(0)
    for weight in _floats(model):
        weight.assign(np.asarray(weight) + random.normal(scale=scale, size=weight.shape))
    return model


def extreme(model):
    """A model with large embeddings, small norms and outlier channels, as in large trained models."""
    for weight in _floats(randomized(model)):
        factor = 30.0 if "embedding" in weight.path else 0.05 if "norm" in weight.path else 1.5
        value = np.asarray(weight) * factor
        if value.ndim == 2:
            value[:, 0] *= 10
        weight.assign(value)
    return model


def _floats(model):
    return [weight for weight in model.weights if "float" in str(weight.dtype) and "variance" not in weight.path]


def specification(model):
    """The spec of a model with its references and their rounding, and what was traced; of a language model, its steps."""
    steps = GenerationOptions(whole_graph=False, prefill_buckets=())
    options = ExportOptions(generation=steps if isinstance(model, tasks.LanguageModel) else None)
    spec = api.model_spec(api.export_twin(model), Request(pathlib.Path(), list(FORMATS), [None], options=options))
    kept = {name: each for name, each in spec.signatures.items() if name in STEPS}
    spec = dataclasses.replace(spec, signatures=kept)
    traced = TracedModule(spec)
    add_graph_probes(spec, traced)
    measure_rounding(traced, spec)
    return spec, traced


def built(name, weights=randomized):
    """A model by name; the same one in each process."""
    keras.utils.set_random_seed(0)
    return weights(MODELS[name]())
