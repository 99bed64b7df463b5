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


class TracedModule(tf.Module):
    """A plain module with one concrete function per signature and the variables they read.

    A Keras model is not made an attribute: `tf.saved_model.save` would then trace its own default signature too.

    Args:
        spec: an `ExportSpec`; the `outputs` of its signatures are filled in.

    Raises:
        InvalidModelError: a signature cannot be traced.
    """

    def __init__(self, spec: ExportSpec) -> None:
        super().__init__(name="exported")
        self._spec = spec
        self._weightless: dict[str, Any] = {}
        self.functions = {name: _trace(name, signature) for name, signature in spec.signatures.items()}
        variables = {id(v): v for function in self.functions.values() for v in function.graph.variables}
        self.exported_modules = list(spec.modules)
        self.exported_variables = list(variables.values())

    def weightless(self, name: str) -> Any:
        """A signature as a `weightless` function, which all formats share."""
        if name not in self._weightless:
            self._weightless[name] = weightless(name, self._spec.signatures[name], self._spec.variables)
        return self._weightless[name]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all variables."""
        return sum(variable.shape.num_elements() * variable.dtype.size for variable in self.exported_variables)


def _trace(name: str, signature: Signature) -> Any:
    def traced(**tensors: Tensor) -> dict[str, Tensor]:
        # The identity makes a separate tensor of an output that is an input, or that is returned twice.
        return {key: tf.identity(value, name=key) for key, value in signature.function(tensors).items()}

    traced.__name__ = name
    arguments = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs}
    try:
        function = tf.function(traced, autograph=False, jit_compile=False).get_concrete_function(**arguments)
    except Exception as error:
        raise InvalidModelError(
            f"signature '{name}' cannot be traced with dynamic shapes: {one_line(error)}"
        ) from error
    signature.outputs = tuple(_output_spec(signature, key, value) for key, value in function.structured_outputs.items())
    return function


def _output_spec(signature: Signature, name: str, tensor: Tensor) -> ArraySpec:
    probes = [(sizes_of(signature.inputs, probe.inputs), probe.outputs[name].shape) for probe in signature.probes]
    shape = (None,) * len(probes[0][1]) if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return ArraySpec(name, tensor.dtype.name, shape, output_axes(name, shape, probes))


def weightless(name: str, signature: Signature, variables: Sequence[keras.Variable]) -> Any:
    """A signature as a concrete function without weights: they are further inputs.

    Args:
        name: of the signature.
        signature: `Signature`.
        variables: the Keras variables that its function reads.

    Returns:
        A concrete function; `weight_arrays` has the values of its further inputs.
    """

    def traced(**tensors: Tensor) -> dict[str, Tensor]:
        weights = [tensors.pop(label) for label in weight_labels(variables)]
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            outputs = signature.function(tensors)
        return {key: tf.identity(value, name=key) for key, value in outputs.items()}

    traced.__name__ = name
    arguments = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs}
    for label, variable in zip(weight_labels(variables), variables, strict=True):
        arguments[label] = tf.TensorSpec(variable.shape, variable.dtype, label)
    return tf.function(traced, autograph=False).get_concrete_function(**arguments)


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
