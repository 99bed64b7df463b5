"""Products whose weights have two digits in TFLite: `x @ (high + low)` as `[x, x] @ [high; low]`, one product."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, signature_of
from keras_transformer.export.tflite.tree import schema


class DoubledInputs:
    """The activations of the graphs of a file beside themselves, once for all products that read them."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def read(self, graph: Graph, operator: Any, width: int) -> None:
        """Lets a `FULLY_CONNECTED` read its activations twice.

        Args:
            graph: `Graph`, changed in place.
            operator: the product.
            width: of the activations.
        """
        source, *others = map(int, operator.inputs)
        key = id(graph.subgraph), source
        if key not in self._known:
            sizes = signature_of(graph.tensors[source])
            name = f"{graph.tensors[source].name.decode()}/twice"
            self._known[key] = graph.add_tensor(name, "FLOAT32", (*sizes[:-1], 2 * width))
            options = schema().ConcatenationOptionsT()
            options.axis = len(sizes) - 1
            position = graph.subgraph.operators.index(operator)
            graph.insert(position, "CONCATENATION", (source, source), (self._known[key],), options)
        operator.inputs = np.array([self._known[key], *others], "int32")
