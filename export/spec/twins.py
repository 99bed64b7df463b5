"""Twins: models rebuilt for export with the weights of another, which may be in use meanwhile and is not changed."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.serialization import model_record
from keras_transformer.utils.types import Config

_ADAPTER_KEYS = ("lora_rank", "lora_alpha")


def rebuilt(model: keras.Model, change: Callable[[Config], Config], reason: str) -> keras.Model:
    """A model from the changed config of another, with new weights.

    Args:
        model: a built Functional or Sequential model.
        change: maps the serialized model to the one to build.
        reason: what the model has that needs another one, for the error.

    Raises:
        InvalidModelError: the model cannot be rebuilt from its config.
    """
    record = model_record(model)
    try:
        twin = keras.saving.deserialize_keras_object(change(record), custom_objects_of(model), safe_mode=False)
        if not twin.built:
            twin.build(model.input_shape)
        _copy_adapted(model, twin)
    except library_exceptions(ImportError) as error:
        raise InvalidModelError(
            f"model '{model.name}' has {reason}, and cannot be rebuilt from its config: {one_line(_first_cause(error))}",
            Remedy.CONFIG,
        ) from error
    return twin


def _first_cause(error: BaseException) -> BaseException:
    """The error that Keras reports within others, of each class around it."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return error


def _copy_adapted(model: keras.Model, twin: keras.Model) -> None:
    """Gives layers what others learned from data by `adapt`, which no config has."""
    adaptable = (keras.layers.StringLookup, keras.layers.IntegerLookup, keras.layers.Normalization)
    found = [[each for each in layers_in_order(one) if isinstance(each, adaptable)] for one in (model, twin)]
    for layer, other in zip(*found, strict=True):
        if isinstance(layer, keras.layers.Normalization):
            other.set_weights(layer.get_weights())
            other.finalize_state()
        elif layer.input_vocabulary is None:
            weights = np.asarray(layer.idf_weights_const) if layer.output_mode == "tf_idf" else None
            other.set_vocabulary(layer.get_vocabulary(), weights)


def merges_adapters(model: keras.Model) -> bool:
    """Whether a model has adapters, and none beside a kernel that Keras quantized."""
    adapted = [each for each in keras_private.flatten_layers(model) if getattr(each, "lora_enabled", False)]
    return bool(adapted) and not any(each.quantization_mode for each in adapted)


def merged_twin(model: keras.Model) -> keras.Model:
    """A model whose kernels are the sums of the kernels and the adapters of another.

    A kernel that Keras quantized stays beside its adapter, as it was trained: the sum has no integers of these scales.

    Args:
        model: a built Functional or Sequential model.

    Returns:
        The same model where it has no adapters, or quantized kernels with adapters, else its twin.

    Raises:
        InvalidModelError: the model cannot be rebuilt from its config.

    Example:

    >>> import keras
    >>> from keras_transformer import training
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")])
    >>> model = training.add_lora(model, rank=1, layers="dense")
    >>> len(model.weights), len(merged_twin(model).weights)
    (4, 2)
    """
    if not merges_adapters(model):
        return model
    from keras_transformer.training.adapters import merged_values

    twin = rebuilt(model, _without_adapters, "adapters")
    values = merged_values(model)
    # In the same order. Paths differ where a Sequential was built layer by layer.
    if len(values) != len(twin.weights):
        raise InvalidModelError(f"model '{model.name}' has adapters, and its config does not build the same weights")
    for (path, value), weight in zip(values.items(), twin.weights, strict=True):
        if not path.endswith(weight.path) and not weight.path.endswith(path):
            raise InvalidModelError(f"model '{model.name}' has adapters, and its config builds no weight '{path}'")
        weight.assign(value)
    return twin


def custom_objects_of(model: keras.Model) -> dict[str, type]:
    """Every class used in a model by the name under which Keras looks it up, registered or not."""
    parts = [*keras_private.flatten_layers(model), *getattr(model, "operations", ())]
    return {keras.saving.get_registered_name(type(part)): type(part) for part in parts}


def _without_adapters(record: Any) -> Any:
    """Copy of a serialized model without the adapters of Keras's layers."""
    if isinstance(record, dict):
        return {name: _without_adapters(value) for name, value in record.items() if name not in _ADAPTER_KEYS}
    if isinstance(record, (list, tuple)):
        return type(record)(_without_adapters(value) for value in record)
    return record
