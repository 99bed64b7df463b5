"""The model that was handed over, where another one is exported in its place: what it computes on the probes of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.export.data.export_spec import ExportSpec, Origin, Probe, Signature
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.spec import names, state
from keras_transformer.export.spec.float32 import half_precisions
from keras_transformer.export.spec.functional import SERVE, check_model, input_specs, probes_of, serving_function
from keras_transformer.export.spec.keras_hub.language_model import language_model_of
from keras_transformer.export.spec.language.signatures import LanguageSignatures
from keras_transformer.export.spec.probes import reference
from keras_transformer.export.spec.twins import merges_adapters
from keras_transformer.layers.ternary import has_ternary_kernel
from keras_transformer.utils.types import Tensor

# So many probes compare the two models.
_PROBES = 2
# Units in the last place of numbers near 1, as multiples of that of float32.
_UNITS = {"bfloat16": 2.0**16, "float16": 2.0**13}
_Function = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def with_origin(spec: ExportSpec, model: keras.Model) -> ExportSpec:
    """A spec of which the first two probes have what the model that was handed over computes.

    Args:
        spec: `ExportSpec` of the model that is exported; its probes are filled in.
        model: the model that was handed over.

    Raises:
        InvalidModelError: the model fails on a probe.
    """
    signatures = spec.whole().signatures
    with full_precision():
        for name, own in _signatures(model, spec).items():
            for probe in signatures[name].probes[:_PROBES] if name in signatures else ():
                probe.origin = reference(own, probe)
    return dataclasses.replace(spec, origin=Origin(tuple(steps_of(model)), unit_of(model)))


def unit_of(model: keras.Model) -> float:
    """The rounding of the least precision in which a model computes, as a multiple of that of float32."""
    return max((_UNITS[each] for each in half_precisions(model)), default=1.0)


def steps_of(model: keras.Model) -> list[str]:
    """How the model that is exported is made of another one.

    Example:

    >>> steps_of(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype="mixed_bfloat16")]))
    ['float32 in place of bfloat16']
    """
    halves = sorted(half_precisions(model))
    steps = ["merged adapters"] if merges_adapters(model) else []
    steps += [f"float32 in place of {' and '.join(halves)}"] if halves else []
    return steps + (["ternary weights"] if any(map(has_ternary_kernel, keras_private.flatten_layers(model))) else [])


def _signatures(model: keras.Model, spec: ExportSpec) -> dict[str, Signature]:
    """What the model computes in place of signatures of the one that is exported; of a language model, without steps."""
    if not spec.generation:
        found = {SERVE: _inference(model, spec.whole().signatures[SERVE])} if SERVE in spec.signatures else {}
    else:
        steps = language_model_of(model)
        make = LanguageSignatures(getattr(steps, "own", steps))
        found = {"prefill": make.prefill()} | ({"encode": make.encode()} if steps.is_encoder_decoder else {})
    return {name: dataclasses.replace(each, function=_with_float32(each)) for name, each in found.items()}


def _inference(model: keras.Model, signature: Signature) -> Signature:
    """The inference of the model, with the states and the random numbers of a signature."""
    functional = check_model(model)
    inputs, outputs = input_specs(functional, {}, one_length=True), names.output_names(functional)
    states = state.states_of(functional, (*(each.name for each in inputs), *outputs))
    function = state.with_states(serving_function(functional, inputs, outputs), states)
    function = state.with_draws(function, list(signature.draws)) if signature.draws else function
    return Signature(function, inputs, [])


def _with_float32(signature: Signature) -> _Function:
    """The function of a signature, with float32 in place of 16 bits in its inputs and outputs."""
    halves = {each.name: each.dtype for each in signature.inputs if each.dtype in _UNITS}

    def called(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        narrow = {name: keras.ops.cast(each, halves[name]) for name, each in tensors.items() if name in halves}
        return {name: _wide(each) for name, each in signature.function({**tensors, **narrow}).items()}

    return called


def _wide(tensor: Tensor) -> Tensor:
    """A tensor of 16 bits in float32."""
    return keras.ops.cast(tensor, "float32") if keras.backend.standardize_dtype(tensor.dtype) in _UNITS else tensor


def origin_probes(model: keras.Model) -> list[Probe]:
    """Two probes with what a model computes on the backend of this process, for one that loads the model on another."""
    functional = check_model(model)
    probes = probes_of(functional, input_specs(functional, {}, one_length=True), None)
    found = probes[:_PROBES]
    for probe in found:
        probe.outputs = outputs_of(model, probe)
    return found


def outputs_of(model: keras.Model, probe: Probe) -> dict[str, np.ndarray]:
    """What a model computes by its inputs alone, on any backend."""
    functional = check_model(model)
    inputs = input_specs(functional, {}, one_length=True)
    with full_precision():
        found = serving_function(functional, inputs, names.output_names(functional))(dict(probe.inputs))
    return {name: np.asarray(keras.ops.convert_to_numpy(_wide(each))) for name, each in found.items()}
