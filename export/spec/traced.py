"""Signatures traced as TensorFlow graphs, from which every format is written."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.export.errors import InvalidModelError, one_line
from keras_transformer.export.spec.axes import output_axes, sizes_of
from keras_transformer.export.spec.export_spec import ArraySpec, ExportSpec, Signature
from keras_transformer.utils.types import Tensor

_PREFIX = "weight_"


class TracedModule:
    """The signatures of a spec as graphs without weights, which every format is written from.

    Each signature is traced once, with its weights as further inputs.

    Args:
        spec: an `ExportSpec`; the `outputs` of its signatures are filled in.

    Attributes:
        exported_variables: list of the `tf.Variable`s that the signatures read.

    Raises:
        InvalidModelError: a signature cannot be traced.
    """

    def __init__(self, spec: ExportSpec) -> None:
        self._spec = spec
        self._graphs = {name: _trace(name, each, spec.variables) for name, each in spec.signatures.items()}
        self.exported_modules = list(spec.modules)
        variables = [each for function in self._graphs.values() for each in self._read_by(function)]
        self.exported_variables = list({id(each): each for each in variables}.values())

    def weightless(self, name: str) -> Any:
        """A signature as a concrete function of named tensors, of which some are weights: see `arguments_of_weights`."""
        return self._graphs[name]

    def weights(self, name: str) -> dict[str, Any]:
        """The current weights, as tensors by name, for a call of `weightless`."""
        function, tensors = self._graphs[name], {}
        read = labels_read_by(function)
        for label, each in zip(weight_labels(self._spec.variables), self._spec.variables, strict=True):
            # A weight that is not read must not be stored: a constant takes its place.
            tensors[label] = each.value.read_value() if label in read else tf.zeros(each.shape, each.dtype)
        return tensors

    def function(self, name: str) -> Any:
        """A signature as a concrete function that reads its weights from the variables of the model."""
        signature, graph = self._spec.signatures[name], self._graphs[name]

        def called(**tensors: Tensor) -> dict[str, Tensor]:
            results = graph(**tensors, **self.weights(name))
            return {key: tf.identity(value, name=key) for key, value in results.items()}

        called.__name__ = name
        return tf.function(called, autograph=False).get_concrete_function(**_arguments(signature))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all variables."""
        return sum(variable.shape.num_elements() * variable.dtype.size for variable in self.exported_variables)

    def _read_by(self, function: Any) -> list[Any]:
        """The variables that a graph reads, through its inputs or by itself."""
        read = labels_read_by(function)
        labels = zip(weight_labels(self._spec.variables), self._spec.variables, strict=True)
        return [each.value for label, each in labels if label in read] + list(function.graph.variables)


def _trace(name: str, signature: Signature, variables: Sequence[keras.Variable]) -> Any:
    """A signature as a concrete function whose weights are further inputs, named by `weight_labels`."""

    def traced(**tensors: Tensor) -> dict[str, Tensor]:
        weights = [tensors.pop(label) for label in weight_labels(variables)]
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            outputs = signature.function(tensors)
        # The identity makes a separate tensor of an output that is an input, or that is returned twice.
        return {key: tf.identity(value, name=key) for key, value in outputs.items()}

    traced.__name__ = name
    arguments = _arguments(signature)
    for label, variable in zip(weight_labels(variables), variables, strict=True):
        arguments[label] = tf.TensorSpec(variable.shape, variable.dtype, label)
    try:
        function = tf.function(traced, autograph=False, jit_compile=False).get_concrete_function(**arguments)
    except Exception as error:
        raise InvalidModelError(
            f"signature '{name}' cannot be traced with dynamic shapes: {one_line(error)}"
        ) from error
    signature.outputs = tuple(_output_spec(signature, key, value) for key, value in function.structured_outputs.items())
    return function


def _arguments(signature: Signature) -> dict[str, tf.TensorSpec]:
    return {spec.name: tf.TensorSpec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs}


def _output_spec(signature: Signature, name: str, tensor: Tensor) -> ArraySpec:
    probes = [(sizes_of(signature.inputs, probe.inputs), probe.outputs[name].shape) for probe in signature.probes]
    shape = (None,) * len(probes[0][1]) if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return ArraySpec(name, tensor.dtype.name, shape, output_axes(name, shape, probes))


def weight_arrays(variables: Sequence[keras.Variable]) -> dict[str, np.ndarray]:
    """Values of the further inputs of `weightless` functions: dict of name, as in `weight_names`, to numpy array."""
    names = weight_names(variables).values()
    return {name: np.asarray(variable) for name, variable in zip(names, variables, strict=True)}


def weight_names(variables: Sequence[keras.Variable]) -> dict[str, str]:
    """For each further input of a `weightless` function the path of its variable, made unique."""
    names: dict[str, str] = {}
    for label, variable in zip(weight_labels(variables), variables, strict=True):
        path = variable.path if "/" in variable.path else f"weights/{variable.path}"
        taken = sum(name == path or name.startswith(f"{path}~") for name in names.values())
        names[label] = f"{path}~{taken + 1}" if taken else path
    return names


def arguments_of_weights(function: Any) -> dict[str, str]:
    """Dict of the name of each tensor that feeds a weight to a `weightless` function to the name of the argument."""
    arguments = function.structured_input_signature[1]
    tensors = {tensor.op.name: tensor.name for tensor in function.inputs}
    return {tensors[name]: name for name in arguments if name.startswith(_PREFIX)}


def weight_labels(variables: Sequence[keras.Variable]) -> list[str]:
    """Names of the further inputs of `weightless` functions, in the order of the variables."""
    return [f"{_PREFIX}{number}" for number in range(len(variables))]


def labels_read_by(function: Any) -> set[str]:
    """Names of the weights that a `weightless` function reads."""
    inputs = {tensor.name: tensor for tensor in function.inputs}
    results = {id(tensor) for tensor in function.outputs}
    return {
        label
        for place, label in arguments_of_weights(function).items()
        if inputs[place].consumers() or id(inputs[place]) in results
    }
