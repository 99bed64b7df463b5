"""The class of quantization-aware models: how they are made of ordinary ones, saved and loaded."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import kernels_of
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.training.compression.quantized_layers import as_plain, attach_quantizers, quantized_layers
from keras_transformer.utils.keras_registration import PACKAGE
from keras_transformer.utils.serialization import model_record, serializable
from keras_transformer.utils.types import Config


@serializable
class QuantizationAware:
    """Mixin of the models that `quantization_aware` returns: how they are saved and loaded.

    The config has that of the ordinary model, from which a loaded model is built, the schemes and the adapters.

    Example:

    >>> from keras_transformer import load_model, training
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")])
    >>> training.quantization_aware(model, WeightScheme(bits=2)).save("aware.keras")
    >>> isinstance(load_model("aware.keras"), QuantizationAware)
    True
    """

    plain_class: type[keras.Model]
    aware_settings: Config

    def get_config(self: keras.Model) -> Config:
        layers = quantized_layers(self)
        with as_plain([self, *layers]):
            record = record_of(self)
        adapted = [layer for layer in keras_private.flatten_layers(self) if getattr(layer, "lora_enabled", False)]
        return {
            "model": record,
            **self.aware_settings,
            "adapters": {layer.path: [layer.lora_rank, layer.lora_alpha] for layer in adapted},
            "frozen": sorted(weight.path for weight in self.weights if not weight.trainable),
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: Config | None = None) -> Self:
        plain = keras.saving.deserialize_keras_object(config["model"], custom_objects)
        build_from(plain, config["model"])
        schemes = {path: WeightScheme(**scheme) for path, scheme in config["schemes"].items()}
        settings = {name: config[name] for name in ("activation_range", "step")}
        model = attach(plain, schemes, settings, initial_step=None)
        add_adapters(model, config["adapters"])
        for weight in model.weights:
            weight.trainable = weight.path not in config["frozen"]
        return model


@functools.cache
def _aware_class(plain: type) -> type:
    made = type("QuantizationAware", (QuantizationAware, plain), {"plain_class": plain, "__module__": __name__})
    # One name for all: the config says which model it is.
    return keras.saving.register_keras_serializable(PACKAGE, "QuantizationAware")(made)


def attach(
    model: keras.Model,
    schemes: Mapping[str, WeightScheme],
    settings: Config,
    initial_step: str | None,
    known: Mapping[str, Blocks | None] = MappingProxyType({}),
) -> keras.Model:
    """Gives the layers of a model their quantizers; without an initial step these wait for saved values.

    `known` are the `Blocks` of weights that were quantized before; those whose values a weight still has are kept.
    """
    kernels = {kernel.path: kernel for kernel in kernels_of(model)}
    for path, scheme in schemes.items():
        if path not in kernels:
            raise WeightQuantizationError(f"{model.name!r} has no weight {path!r}: {', '.join(kernels)}")
        rows = kernels[path].rows()
        quantizer = attach_quantizers(kernels[path], scheme, settings["activation_range"], settings["step"])
        if initial_step is not None:
            blocks = known.get(path)
            quantizer.initialize(rows, initial_step, blocks if _has_values(rows, blocks, scheme) else None)
        if settings["step"] == "scales_only":
            kernels[path].variable.trainable = False
    found = {path: dataclasses.asdict(scheme) for path, scheme in schemes.items()}
    model.aware_settings = {"schemes": found, **settings}
    plain: Any = type(model)
    model.__class__ = _aware_class(plain)
    return model


def _has_values(rows, blocks, scheme):
    """Whether rows are the numbers of blocks of a scheme."""
    if blocks is None or (blocks.minimum is not None) != scheme.has_minimum or blocks.bits != scheme.stored_bits:
        return False
    size = scheme.block_size or rows.shape[1]
    q = blocks.codes.astype(int) - scheme.zero
    is_within = scheme.lowest <= q.min() and q.max() <= scheme.highest
    return is_within and blocks.codes.shape[2] == size and np.array_equal(blocks.values, rows)


def record_of(model: keras.Model) -> Config:
    """The config of a model with its class, without how it was compiled."""
    try:
        return model_record(model)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise WeightQuantizationError(f"{model.name!r} has no config to rebuild it from: {error}") from error


def rebuilt(record: Config, name: str) -> keras.Model:
    """The model of a config."""
    try:
        model = keras.saving.deserialize_keras_object(record, safe_mode=False)
        build_from(model, record)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise WeightQuantizationError(f"{name!r} cannot be rebuilt from its config: {error}") from error
    return model


def build_from(model: keras.Model, record: Config) -> None:
    """Builds the model of a config, where that did not."""
    if not model.built:
        model.build(record["build_config"]["input_shape"])


def add_adapters(model: keras.Model, adapters: Mapping[str, tuple[int, float]]) -> None:
    """Adds adapters to layers: dict of path to rank and alpha."""
    layers = {layer.path: layer for layer in keras_private.flatten_layers(model)}
    for path, (rank, alpha) in adapters.items():
        layers[path].enable_lora(rank, lora_alpha=alpha)
