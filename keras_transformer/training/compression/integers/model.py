"""Models that train with the integers of their `full_int8` files: how they are made, saved, observed and made ordinary."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

import keras

from keras_transformer.backend import keras_private
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.training.compression.integers.activation_quantizer import ActivationQuantizer
from keras_transformer.training.compression.integers.layers import (
    IntegerLayer,
    Placement,
    attach,
    has_weights,
    prepare_attention,
    quantizers_of,
    rounded_weights,
)
from keras_transformer.training.compression.integers.placement import placements
from keras_transformer.training.compression.quantization_aware_class import build_from, rebuilt, record_of
from keras_transformer.training.compression.quantized_layers import as_plain
from keras_transformer.utils.keras_registration import PACKAGE
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor

# The mode of files whose integers a model trains with.
FULL_INT8 = "full_int8"


@serializable
class IntegerAware:
    """Mixin of the models that `quantization_aware(model, "full_int8")` returns: how they are saved and loaded.

    The config has that of the ordinary model, from which a loaded model is built.

    Example:

    >>> from keras_transformer import load_model, training
    >>> model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)])
    >>> training.quantization_aware(model, "full_int8").save("aware.keras")
    >>> isinstance(load_model("aware.keras"), IntegerAware)
    True
    """

    plain_class: type[keras.Model]
    step_kind: str

    def get_config(self: keras.Model) -> Config:
        with as_ordinary(self):
            record = record_of(self)
        # Not by their paths: layers without a name have another one in another process.
        frozen = [index for index, weight in enumerate(self.weights) if not weight.trainable]
        return {"model": record, "step": self.step_kind, "frozen": frozen}

    @classmethod
    def from_config(cls, config: Config, custom_objects: Config | None = None) -> Self:
        plain = keras.saving.deserialize_keras_object(config["model"], custom_objects)
        build_from(plain, config["model"])
        model = with_integers(plain, config["step"])
        for index, weight in enumerate(model.weights):
            weight.trainable = index not in config["frozen"]
        return model


@functools.cache
def _aware_class(plain: type) -> type:
    made = type("IntegerAware", (IntegerAware, plain), {"plain_class": plain, "__module__": __name__})
    # One name for all: the config says which model it is.
    return keras.saving.register_keras_serializable(PACKAGE, "IntegerAware")(made)


def with_integers(model: keras.Model, step: str) -> keras.Model:
    """Gives the layers of a model their quantizers, in place.

    Args:
        model: Functional, built.
        step: "learned" or "straight_through".

    Raises:
        WeightQuantizationError: the model is not Functional, or nothing in it is rounded.
    """
    if not getattr(keras_private.functional(model), "inputs", None):
        raise WeightQuantizationError(f"{model.name!r} is not Functional: {FULL_INT8!r} has to know its inputs")
    every = keras_private.flatten_layers(model, include_self=False)
    prepare_attention(every)
    found = placements(model)
    for layer in every:
        if (id(layer) in found or has_weights(layer)) and not isinstance(layer, IntegerLayer):
            attach(layer, found.get(id(layer), Placement()), step)
    if not quantizers_in(model):
        raise WeightQuantizationError(f"{model.name!r} has no layer that can be quantized")
    model.step_kind = step
    plain: Any = type(model)
    model.__class__ = _aware_class(plain)
    return model


def integer_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers whose weights or activations are rounded, at any depth."""
    return [layer for layer in keras_private.flatten_layers(model) if isinstance(layer, IntegerLayer)]


def quantizers_in(model: keras.layers.Layer) -> list[ActivationQuantizer]:
    """The quantizers of all layers of a model."""
    return [each for layer in integer_layers(model) for each in quantizers_of(layer)]


def as_ordinary(model: keras.Model) -> AbstractContextManager[None]:
    """Context in which a model and its layers have the classes that they had before: for their configs and names."""
    return as_plain([model, *integer_layers(model)])


def with_rounded_weights(model: keras.Model) -> keras.Model:
    """An ordinary copy of a model: its weights have the rounded values, its activations are float.

    Args:
        model: `IntegerAware`.
    """
    plain = rebuilt(model.get_config()["model"], model.name)
    found = integer_layers(model)
    own = {id(weight) for each in quantizers_in(model) for weight in each.weights}
    rounded = {key: value for layer in found for key, value in rounded_weights(layer).items()}
    kept = [weight for weight in model.weights if id(weight) not in own]
    for weight, value in zip(plain.weights, kept, strict=True):
        weight.assign(keras.ops.convert_to_numpy(rounded.get(id(value), value)))
    return plain


@contextlib.contextmanager
def observed(model: keras.Model, observe: Callable[[ActivationQuantizer, Tensor], None]) -> Iterator[None]:
    """Context in which the activations of a model are not rounded, but shown to a function with their quantizer.

    Args:
        model: `IntegerAware`, called directly.
        observe: function.
    """
    quantizers = quantizers_in(model)
    try:
        for each in quantizers:
            each.observe = observe
        yield
    finally:
        for each in quantizers:
            each.observe = None
