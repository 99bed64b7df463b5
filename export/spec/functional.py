"""Export specs of Keras Functional models."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data import axes
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.errors import InvalidModelError, NotDeterministicError
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.graph.replaced_layers import replaced
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec import names, probes, state, vocabulary
from keras_transformer.export.spec.functional_form import input_structure
from keras_transformer.export.spec.lengths import with_equal_axes, with_long_probes, with_own_lengths
from keras_transformer.export.spec.probing.model_probes import (
    add_finite_probes,
    add_further_probes,
    add_generated_probes,
    add_reaching_probe,
    input_limits,
    probes_of,
)
from keras_transformer.utils.types import ArrayLike, Tensor

SERVE = "serve"


def functional_spec(
    model: keras.Model,
    tolerance: float | None = None,
    probes: Sequence[Mapping[str, ArrayLike]] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    one_length: bool = False,
    output_names: Sequence[str] | None = None,
    generates: bool = True,
) -> ExportSpec:
    """Export spec of a built Functional or Sequential model, with the one signature `serve`.

    Args:
        model: the model, on the TensorFlow backend.
        tolerance: largest difference allowed, as a share of each output's scale; None for what rounding explains.
        probes: list of dicts, each of input arrays or of axis sizes, that come before generated ones; or None.
        dynamic_axes: dict of input name to a dict of axis index to axis name.
        one_length: bool. Whether all sequences have one length, `length`, as probes say that name it.
        output_names: names of the outputs, in flattened order; those of the model when None.
        generates: bool. Whether probes are generated beside those that are given.

    Returns:
        An `ExportSpec` whose signature has its inputs and probes, with the outputs of the Keras model in each probe.

    Raises:
        InvalidModelError: the model is not functional, an argument does not fit it, or it fails on a probe.
    """
    model = check_model(model)
    state.warn_of_training(model)
    one_length = one_length or any("length" in each for each in probes or ())
    inputs = input_specs(model, dynamic_axes or {}, one_length)
    signature = _signature(model, inputs, probes, output_names, generates)
    longest = vocabulary.longest_sequence(model)
    lengths = {axis for spec in inputs for axis in spec.axes if axis and "length" in axis}
    limits = dict.fromkeys(sorted(lengths), longest) if longest else {}
    return ExportSpec(
        {SERVE: signature},
        tolerance,
        locator(model),
        tuple(model.variables),
        axis_limits=limits,
        modules=vocabulary.lookup_tables(model),
        layers=tuple(layers_in_order(model)),
    )


def _signature(
    model: keras.Model,
    inputs: tuple[ArraySpec, ...],
    given: Sequence[Mapping[str, ArrayLike]] | None,
    outputs: Sequence[str] | None,
    generates: bool,
) -> Signature:
    """The signature of the inference of a model, with its states, its probes and what it computes of them."""
    make = functools.partial(_signature_of_probes, model, inputs, given, outputs)
    if given is not None:
        signature = make(1)
        if generates:
            add_generated_probes(model, signature)
        return signature
    return with_long_probes(make, inputs, [tensor.shape for _, tensor in names.outputs_in_order(model.output)])


def _signature_of_probes(
    model: keras.Model,
    inputs: tuple[ArraySpec, ...],
    given: Sequence[Mapping[str, ArrayLike]] | None,
    outputs: Sequence[str] | None,
    factor: int,
) -> Signature:
    """The signature, with generated probes some times as long as usual."""
    outputs = names.output_names(model) if outputs is None else outputs
    states = state.states_of(model, (*(each.name for each in inputs), *outputs))
    function = state.with_states(serving_function(model, inputs, outputs), states)
    inputs = (*inputs, *state.state_specs(states))
    signature = Signature(
        function,
        inputs,
        probes_of(model, inputs, state.with_zeros(given, inputs, states), factor),
        labels=names.output_labels(model),
        states=tuple(states),
        structure=input_structure(model, names.input_names(model)),
    )
    try:
        _fill(model, signature)
    except NotDeterministicError:
        signature = state.with_drawn_inputs(signature)
        if not signature.draws:
            raise
        _fill(model, signature)
    if given is None:
        add_finite_probes(model, signature)
        add_reaching_probe(model, signature)
        add_further_probes(model, signature, factor)
    probes.check_finite(signature.probes)
    return signature


def _fill(model: keras.Model, signature: Signature) -> None:
    probes.fill_references(signature, lambda _: state.changes_in_a_call(model, signature), may_be_nan=True)


def check_model(model: Any) -> keras.Model:
    """Refuses what is not a built Functional or Sequential Keras model.

    Returns:
        The Functional model: the model itself, or the one inside a Sequential.

    Raises:
        InvalidModelError: the model is neither.
    """
    if not isinstance(model, keras.Model):
        raise InvalidModelError(f"not a Keras model: {type(model).__name__}")
    if not model.built:
        raise InvalidModelError(f"model '{model.name}' is not built", Remedy.FUNCTIONAL)
    functional = keras_private.functional(model)
    if not hasattr(functional, "operations") or not getattr(functional, "inputs", None):
        raise InvalidModelError(f"model '{model.name}' ({type(model).__name__}) is not functional", Remedy.FUNCTIONAL)
    for tensor in keras.tree.flatten(functional.input):
        if tensor.sparse or getattr(tensor, "ragged", False):
            raise InvalidModelError(f"input '{tensor.name}' is sparse or ragged", Remedy.DENSE)
    return functional


def input_specs(
    model: keras.Model, dynamic_axes: Mapping[str, Mapping[int, str]], one_length: bool = False
) -> tuple[ArraySpec, ...]:
    """Specs of the inputs of a Functional model, as `check_model` returns it.

    Args:
        model: the model.
        dynamic_axes: dict of input name to a dict of axis index to axis name.
        one_length: bool. Whether all sequences have one length; by default those that the model takes with lengths of their
            own have an axis each.

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
    if one_length:
        return tuple(specs)
    limits = input_limits(model, specs)
    function = serving_function(model, specs)
    return with_own_lengths(with_equal_axes(specs, limits, function, dynamic_axes), limits, function, dynamic_axes)


def serving_function(
    model: keras.Model, inputs: Sequence[ArraySpec], output_names: Sequence[str] | None = None
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Inference of a Functional model as a function from named tensors to named tensors: what `predict` computes.

    It raises an `InvalidModelError` where an output is complex, and a `ValueError` where a window does not fit.
    """
    from keras_transformer.export.operations.layers import AS_IN_PREDICT

    layers = keras_private.flatten_layers(model)
    structure, outputs = model.input, names.output_names(model) if output_names is None else output_names
    order = [spec.name for spec in inputs]

    has_any_batch = any("batch" in spec.axes for spec in inputs)

    def serve(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        sums = keras_private.sums_of_columns() if has_any_batch else contextlib.nullcontext()
        with replaced(layers, AS_IN_PREDICT), sums:
            results = model(keras.tree.pack_sequence_as(structure, [tensors[name] for name in order]), training=False)
        found = dict(zip(outputs, (each for _, each in names.outputs_in_order(results)), strict=True))
        for name, each in found.items():
            if getattr(each.dtype, "is_complex", False):
                raise InvalidModelError(f"output '{name}' is complex", Remedy.COMPLEX)
        return found

    return serve
