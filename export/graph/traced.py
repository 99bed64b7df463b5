"""The signatures of a spec traced as TensorFlow graphs, from which every format is written."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.backend import keras_private
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.lazy_array import AnyArray, LazyArray
from keras_transformer.export.graph.repeated_layers import RepeatedLayers
from keras_transformer.export.graph.replaced_layers import ReplacedLayer, replaced
from keras_transformer.export.graph.traced_graph import TracedGraph, arguments_of, trace, weight_labels
from keras_transformer.export.graph.untraceable import check_is_graph, untraceable
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


class TracedModule:
    """The signatures of a spec as graphs without weights. Each is traced once.

    Args:
        spec: an `ExportSpec`; the `outputs` of its signatures are filled in.
        replacements: list of `ReplacedLayer`, for what is written in every format.

    Attributes:
        graphs: dict of signature name to `TracedGraph`.
        values: dict of the name of each weight in the graphs to its `tf.Variable` or `UnallocatedWeight`.
        exported_variables: list of the `tf.Variable`s that the signatures read, or `UnallocatedWeight`s in their place.
        exported_modules: list of the `tf.Module`s whose resources they use.

    Raises:
        InvalidModelError: a signature cannot be traced, or computes with functions of Python.
    """

    def __init__(self, spec: ExportSpec, replacements: Sequence[ReplacedLayer] = ()) -> None:
        self._spec, self._replacements = spec, tuple(replacements)
        self.values = dict(zip(weight_labels(spec.variables), map(_value_of, spec.variables), strict=True))
        self._repeated = RepeatedLayers(spec.layers)
        self.graphs = {name: self._trace(name, self._replacements) for name in spec.signatures}
        self.exported_modules = list(spec.modules)
        found = [each for graph in self.graphs.values() for each in (*self.variables(graph).values(), *graph.variables)]
        self.exported_variables = list({id(each): each for each in found}.values())

    def variables(self, graph: TracedGraph) -> dict[str, tf.Variable]:
        """The `tf.Variable` of each weight that a graph reads."""
        return {label: self.values[label] for label in graph.weights}

    def traced_again(self, name: str, replacements: Sequence[ReplacedLayer]) -> TracedGraph:
        """A signature in which further layers are replaced.

        Args:
            name: of the signature.
            replacements: list of `ReplacedLayer`.
        """
        return self._trace(name, (*self._replacements, *replacements))

    def _trace(self, name: str, replacements: Sequence[ReplacedLayer]) -> TracedGraph:
        signature, variables = self._spec.signatures[name], self._spec.variables
        with replaced(self._spec.layers, replacements):
            try:
                graph = trace(name, signature, variables, self._repeated)
            except library_exceptions(ImportError) as error:
                raise untraceable(name, signature, variables, self._spec.layers, error) from error
        check_is_graph(graph, self._spec.locate)
        return graph

    def with_graphs(self, graphs: Mapping[str, TracedGraph]) -> TracedModule:
        """A copy with other graphs of the same variables.

        Args:
            graphs: dict of signature name to `TracedGraph`.
        """
        copied = copy.copy(self)
        copied.graphs = dict(graphs)
        return copied

    def function(self, name: str) -> ConcreteFunction:
        """A signature as a concrete function that reads its weights from the variables of the model."""
        graph = self.graphs[name]

        def called(**tensors: Tensor) -> dict[str, Tensor]:
            weights = {label: each.read_value() for label, each in self.variables(graph).items()}
            return graph.imported(tensors | weights, is_outlined=True)

        called.__name__ = name
        return tf.function(called, autograph=False).get_concrete_function(**arguments_of(self._spec.signatures[name]))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all variables."""
        return sum(variable.shape.num_elements() * variable.dtype.size for variable in self.exported_variables)


class UnallocatedWeight:
    """A weight of a model whose values are computed each time they are read; see `float32.streamed_twin`.

    Args:
        variable: Keras variable without a value.
    """

    def __init__(self, variable: keras.Variable) -> None:
        self._variable = variable
        self.name, self.shape, self.dtype = variable.name, tf.TensorShape(variable.shape), tf.as_dtype(variable.dtype)

    def read_value(self) -> Tensor:
        """The values as a tensor."""
        return tf.convert_to_tensor(self._variable)


def _value_of(variable: keras.Variable) -> tf.Variable | UnallocatedWeight:
    return variable.value if keras_private.has_value(variable) else UnallocatedWeight(variable)


def weight_arrays(variables: Sequence[keras.Variable]) -> dict[str, AnyArray]:
    """Values of variables by name, as in `weight_names`, as views where numpy can have them."""
    names = weight_names(variables).values()
    return {name: lazy_array(variable) for name, variable in zip(names, variables, strict=True)}


def lazy_array(variable: keras.Variable) -> AnyArray:
    """Values of a variable as a view, or, where they are computed each time they are read, as a lazy array."""
    return array_of(_value_of(variable))


def array_of(variable: tf.Variable | UnallocatedWeight) -> AnyArray:
    """The values of a `tf.Variable`, without a copy where its type allows that. They must not be changed.

    Args:
        variable: `tf.Variable`, or an `UnallocatedWeight`, whose values are computed when the array is read.
    """
    if isinstance(variable, UnallocatedWeight):
        shape = tuple(variable.shape.as_list())
        return LazyArray(lambda: _view(variable.read_value()), shape, variable.dtype.as_numpy_dtype, variable)
    return _view(variable.read_value())


def _view(tensor: tf.Tensor) -> np.ndarray:
    try:
        return np.asarray(memoryview(tensor))
    except (TypeError, ValueError, BufferError):
        return tensor.numpy()


def weight_names(variables: Sequence[keras.Variable]) -> dict[str, str]:
    """For each of `weight_labels` the path of its variable, made unique."""
    names: dict[str, str] = {}
    for label, variable in zip(weight_labels(variables), variables, strict=True):
        path = variable.path if "/" in variable.path else f"weights/{variable.path}"
        taken = sum(name == path or name.startswith(f"{path}~") for name in names.values())
        names[label] = f"{path}~{taken + 1}" if taken else path
    return names
