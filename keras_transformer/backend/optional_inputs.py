"""Inputs that may be left out of a call."""

from __future__ import annotations

import keras

from keras_transformer.utils.types import Tensors


def with_optional_inputs(model: keras.Model, inputs: Tensors) -> Tensors:
    """Returns the inputs of a Functional model with None for those that are optional and left out, as Keras expects them.

    Args:
        model: Functional `keras.Model`.
        inputs: dict of tensors; or a single tensor, for a model of named inputs all of which but one are optional. What is
            anything else, or lacks a required input, is returned as it is: Keras raises an error for it.

    Example:

    >>> names = {name: keras.Input((2,), name=name, optional=name == "mask") for name in ("mask", "x")}
    >>> model = keras.Model(names, keras.layers.Dense(1)(names["x"]))
    >>> with_optional_inputs(model, {"x": 5})
    {'mask': None, 'x': 5}
    >>> with_optional_inputs(model, 5)
    {'mask': None, 'x': 5}
    """
    if not isinstance(model.input, dict):
        return inputs
    optional = {spec.name for spec in model.input_spec if spec.optional}
    required = [name for name in model.input if name not in optional]
    if len(required) == 1 and optional and not isinstance(inputs, (dict, list, tuple)):
        inputs = {required[0]: inputs}
    return {**dict.fromkeys(sorted(optional)), **inputs} if isinstance(inputs, dict) else inputs
