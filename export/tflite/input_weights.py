"""Conversion with the large weights as inputs, which become constants afterwards."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import node_name
from keras_transformer.export.graph.traced import lazy_array
from keras_transformer.export.graph.traced_graph import weight_labels
from keras_transformer.export.tflite.passes.products import complete_products
from keras_transformer.export.tflite.source import write_source
from keras_transformer.export.tflite.weight_consumers import plainly_read
from keras_transformer.export.tflite.weights.insert_weights import Inserter

if TYPE_CHECKING:
    import keras
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.graph.part import node_name
from keras_transformer.export.graph.traced import TracedModule

# Smaller weights are constants: the converter may compute with them.
_SMALL = 4096


class InputWeights:
    """The signatures of a spec with their large weights as inputs.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec`.
        names: names of the signatures.
    """

    def __init__(self, traced: TracedModule, spec: ExportSpec, names: Sequence[str]) -> None:
        self._graphs = {name: traced.graphs[name] for name in names}
        self._variables = dict(zip(weight_labels(spec.variables), spec.variables, strict=True))
        found = [
            plainly_read(graph.graph_def, graph.weights, [node_name(each) for each in graph.outputs.values()])
            for graph in self._graphs.values()
        ]
        plain = {label for _, labels in found for label in labels}
        others = {label for read, labels in found for label in read - labels}
        self._inputs = {label for label in plain - others if _is_large(self._variables[label])}

    def save(self, path: pathlib.Path) -> None:
        """Writes a SavedModel for the converter."""
        constants = {
            label: tf.make_tensor_proto(np.asarray(lazy_array(each)))
            for label, each in self._variables.items()
            if label not in self._inputs
        }
        write_source(self._graphs, constants, path)

    def insert(self, model: ModelT, folds_factors: bool = True) -> None:
        """Puts the weights into the converted file, a `ModelT`; see `complete_products`."""
        inserter = Inserter(model)
        inserter.insert_into_signatures({label: self._variables[label] for label in self._inputs})
        complete_products(model, inserter, folds_factors)


def _is_large(variable: keras.Variable) -> bool:
    return str(variable.dtype) == "float32" and len(variable.shape) > 1 and np.prod(variable.shape) >= _SMALL
