"""Signatures of the methods of a model, such as `encode` and `decode`, beside that of its `call`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import keras

from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.functional import SERVE, functional_spec
from keras_transformer.export.spec.functional_form import CALL, CallLayer, called_model, functional_form, title

# A method, or one and its inputs.
Method: TypeAlias = Callable[..., object] | tuple[Callable[..., object], Any]


def form_of(model: keras.layers.Layer, inputs: Any, methods: Mapping[str, Method]) -> keras.Model:
    """A model as a Functional one; one of which only methods were called, as that of the first of its signatures.

    Args:
        model: any Keras model or layer.
        inputs: as of `functional_form`.
        methods: `ExportOptions.signatures`.

    Raises:
        InvalidModelError: see `functional_form`, or a signature is no method of the model.
    """
    for name, given in methods.items():
        method, _ = _parts(given)
        if getattr(method, "__self__", None) is not model:
            raise InvalidModelError(
                f"signatures['{name}'] must be a method of {title(model)}, or a tuple of one and its inputs."
                f" Received: {given!r}"
            )
    if methods and not model.built and inputs is None:
        method, inputs = _parts(next(iter(methods.values())))
        return functional_form(model, inputs, method.__name__)
    return functional_form(model, inputs)


def with_methods(spec: ExportSpec, form: keras.Model, methods: Mapping[str, Method]) -> ExportSpec:
    """A spec with the signatures of methods.

    Args:
        spec: `ExportSpec` of the model's `call`, or of the first of the methods.
        form: the Functional model that it was made of.
        methods: `ExportOptions.signatures`.

    Raises:
        InvalidModelError: a method cannot be called on its inputs.
    """
    model = called_model(form)
    is_call = all(each.method == CALL for each in form.layers if isinstance(each, CallLayer))
    signatures: dict[str, Signature] = {SERVE: spec.signatures[SERVE]} if is_call else {}
    limits = dict(spec.axis_limits)
    for name, given in methods.items():
        method, inputs = _parts(given)
        found = functional_spec(functional_form(model, inputs, method.__name__), spec.tolerance)
        signatures[name] = found.signatures[SERVE]
        limits |= found.axis_limits
    return dataclasses.replace(spec, signatures=signatures, axis_limits=limits)


def _parts(given: Method) -> tuple[Callable[..., object], Any]:
    """The method of a signature, and its inputs or None."""
    return given if isinstance(given, tuple) else (given, None)
