"""Export specs of Keras Functional models."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data import axes
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.spec import names, probes, vocabulary
from keras_transformer.export.spec.reach import reaching_length
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import ArrayLike, Tensor

SERVE = "serve"


def functional_spec(
    model: keras.Model,
    tolerance: float | None = None,
    probes: Sequence[Mapping[str, ArrayLike]] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
) -> ExportSpec:
    """Export spec of a built Functional or Sequential model, with the one signature `serve`.

    Args:
        model: the model, on the TensorFlow backend.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.
        probes: list of dicts, each of input arrays or of axis sizes; generated when None.
        dynamic_axes: dict of input name to a dict of axis index to axis name.

    Returns:
        An `ExportSpec` whose signature has its inputs and probes, with the outputs of the Keras model in each probe.

    Raises:
        InvalidModelError: the model is not functional, an argument does not fit it, or it fails on a probe.
    """
    model = check_model(model)
    inputs = input_specs(model, dynamic_axes or {})
    signature = Signature(_serving_function(model, inputs), inputs, _probes(model, inputs, probes))
    fill_references(signature)
    if probes is None:
        _add_reaching_probe(model, signature)
    longest = vocabulary.longest_sequence(model)
    lengths = {axis for spec in inputs for axis in spec.axes if axis and "length" in axis}
    limits = dict.fromkeys(sorted(lengths), longest) if longest else {}
    return ExportSpec(
        {SERVE: signature},
        tolerance,
        locator(model),
        tuple(model.variables),
        axis_limits=limits,
        layers=tuple(layers_in_order(model)),
    )


def check_model(model: Any) -> Any:
    """Refuses what is not a built Functional or Sequential Keras model.

    Returns:
        The Functional model: the model itself, or the one inside a Sequential.

    Raises:
        InvalidModelError: the model is neither.
    """
    if not isinstance(model, keras.Model):
        raise InvalidModelError(f"not a Keras model: {type(model).__name__}")
    if not model.built:
        raise InvalidModelError(f"model '{model.name}' is not built: call it on data, or add an Input, first")
    functional = keras_private.functional(model)
    if not hasattr(functional, "operations") or not getattr(functional, "inputs", None):
        raise InvalidModelError(
            f"model '{model.name}' ({type(model).__name__}) is not functional: build it with"
            " keras.Model(inputs, outputs) or keras.Sequential with an Input"
        )
    for tensor in keras.tree.flatten(functional.input):
        if str(tensor.dtype) == "string" or tensor.sparse or getattr(tensor, "ragged", False):
            raise InvalidModelError(
                f"input '{tensor.name}' is {tensor.dtype}, sparse or ragged: only dense numbers export"
            )
    return functional


def fill_references(signature: Signature) -> None:
    """Runs a signature's own function on every probe, whose `outputs` become its results.

    A probe that has outputs, since signatures of the same function share it, is left as it is. A signature that computes
    what another one does is not called a second time.

    Raises:
        InvalidModelError: the function fails on a probe, computes NaN, or returns other values in a second call.
    """
    with full_precision():
        for probe in (each for each in signature.probes if not each.outputs):
            probe.outputs = _reference(signature, probe)
            for name, value in probe.outputs.items():
                if value.dtype.kind == "f" and np.isnan(value).any():
                    raise InvalidModelError(f"the model itself computes NaN in output '{name}' on {probe.label}")
        if signature.general is not None or signature.is_repeatable:
            return
        again = _reference(signature, signature.probes[0])
    for name, value in signature.probes[0].outputs.items():
        if not np.allclose(value, again[name], rtol=1e-3, atol=1e-5):
            raise InvalidModelError(
                f"the model itself is not deterministic: output '{name}' differs between two calls in inference mode"
            )


def _reference(signature: Signature, probe: Probe) -> dict[str, np.ndarray]:
    import tensorflow as tf

    try:
        outputs = signature.function({name: tf.convert_to_tensor(array) for name, array in probe.inputs.items()})
    except Exception as error:  # A user's own layer may raise anything.
        raise InvalidModelError(
            f"the model itself fails on the probe {probe.label}: {one_line(error)}"
            " (pass `probes`: sizes or arrays that it accepts)"
        ) from error
    return {name: np.asarray(value) for name, value in outputs.items()}


def input_specs(model: Any, dynamic_axes: Mapping[str, Mapping[int, str]]) -> tuple[ArraySpec, ...]:
    """Specs of the inputs of a Functional model, as `check_model` returns it.

    Raises:
        InvalidModelError: `dynamic_axes` names no input.
    """
    named = names.input_names(model)
    unknown = sorted(set(dynamic_axes) - set(named))
    if unknown:
        raise InvalidModelError(f"dynamic_axes names no input of the model: {unknown}; its inputs are {named}")
    specs = []
    for name, tensor in zip(named, keras.tree.flatten(model.input), strict=True):
        shape = tuple(tensor.shape)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
        specs.append(ArraySpec(name, dtype, shape, axes.axis_names(name, shape, dynamic_axes.get(name))))
    return tuple(specs)


def _probes(model: Any, inputs: tuple[ArraySpec, ...], given: Sequence[Mapping[str, ArrayLike]] | None) -> list[Probe]:
    limits = _integer_limits(model, inputs)
    if given is None:
        return probes.make_probes(inputs, limits, vocabulary.longest_sequence(model))
    return probes.user_probes(inputs, limits, given)


def _integer_limits(model: Any, inputs: tuple[ArraySpec, ...]) -> dict[str, int | None]:
    tensors = keras.tree.flatten(model.input)
    return dict(zip([spec.name for spec in inputs], vocabulary.integer_limits(tensors), strict=True))


def _add_reaching_probe(model: Any, signature: Signature) -> None:
    """Adds a probe past every window and block, unless the model has a limit that no layer names."""
    limits = _integer_limits(model, signature.inputs)
    for probe in probes.reaching_probes(signature.inputs, limits, reaching_length(model)):
        with contextlib.suppress(InvalidModelError):
            fill_references(dataclasses.replace(signature, probes=[probe]))
            signature.probes.append(probe)


def _serving_function(model: Any, inputs: tuple[ArraySpec, ...]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Inference of the model as a function from named tensors to named tensors."""
    structure, outputs = model.input, names.output_names(model)
    order = [spec.name for spec in inputs]

    def serve(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        results = model(keras.tree.pack_sequence_as(structure, [tensors[name] for name in order]), training=False)
        return dict(zip(outputs, keras.tree.flatten(results), strict=True))

    return serve
