"""Offsets of the blocks of tables in TFLite, which are looked up beside the rows; digits of the rows are added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, signature_of
from keras_transformer.export.tflite.tree import schema


def add_to_rows(graph: Graph, operator: Any, offsets: int, width: int, count: int) -> None:
    """Adds offsets to what an `EMBEDDING_LOOKUP` returns.

    Args:
        graph: `Graph`, changed in place.
        operator: the lookup, of rows `(n, count * width)`.
        offsets: tensor of the offsets `(V, blocks)`.
        width: of the rows that come out.
        count: digits of each number.
    """
    ids, (output,) = int(operator.inputs[0]), map(int, operator.outputs)
    name, rows = graph.tensors[output].name.decode(), signature_of(graph.tensors[ids])[0]
    blocks = int(graph.tensors[offsets].shape[1])
    block = width // blocks

    def tensor(part: str, *sizes: int) -> int:
        return graph.add_tensor(f"{name}/{part}", "FLOAT32", (rows, *sizes))

    def shape(part: str, *sizes: int) -> int:
        return graph.add_constant(f"{name}/{part}/shape", "INT32", np.array([-1, *sizes], "int32"))

    looked_up, parted, summed = (
        tensor("digits", count * width),
        tensor("parted", count, blocks, block),
        tensor("blocks", blocks, block),
    )
    found, spread, moved = tensor("offsets", blocks), tensor("spread", blocks, 1), tensor("moved", blocks, block)
    axis = graph.add_constant(f"{name}/axis", "INT32", np.array([1], "int32"))
    operator.outputs = np.array([looked_up], "int32")
    options = schema().ReshapeOptionsT
    steps = [
        ("RESHAPE", (looked_up, shape("parted", count, blocks, block)), (parted,), options()),
        ("SUM", (parted, axis), (summed,), schema().ReducerOptionsT()),
        ("EMBEDDING_LOOKUP", (ids, offsets), (found,), None),
        ("RESHAPE", (found, shape("spread", blocks, 1)), (spread,), options()),
        ("ADD", (summed, spread), (moved,), schema().AddOptionsT()),
        ("RESHAPE", (moved, shape("rows", width)), (output,), options()),
    ]
    position = graph.subgraph.operators.index(operator) + 1
    for step in reversed(steps):
        graph.insert(position, *step)
