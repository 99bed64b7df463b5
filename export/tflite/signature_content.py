"""The content of a TFLite file with the operations of one signature, and the first one of all other graphs.

LiteRT's interpreter hands all graphs of a file to XNNPACK, which packs the weights of each: the files of a decoder with six
signatures take seven times their weights in memory, whichever of them is called. Where the other graphs end after one
operation, the weights are packed once. Without any operation LiteRT 2.3 would silently leave out XNNPACK in the graphs that
follow.
"""

from __future__ import annotations

import io
import pathlib
import shutil
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_transformer.export.tflite.calls import called_graphs, operator_kinds
from keras_transformer.export.tflite.tree import schema

# Where the table of a graph says that its operators are.
_OPERATORS = 10
_LENGTH = struct.Struct("<I")
_KEPT = 1
_PIECE = 2**24


def content_of(path: pathlib.Path, signature: str) -> bytes:
    """The bytes of a file in which all graphs that a signature does not run end after one operation.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
        signature: name of a signature of it.
    """
    places = list(_lengths_of_others(np.memmap(path, "uint8", "r"), signature))
    content = io.BytesIO()
    with open(path, "rb") as file:
        shutil.copyfileobj(file, content, _PIECE)
    for place in places:
        content.seek(place)
        content.write(_LENGTH.pack(_KEPT))
    return content.getvalue()  # Not a copy.


def _lengths_of_others(content: Any, signature: str) -> Iterator[int]:
    """Positions of the numbers of operators of the graphs that a signature does not run."""
    model = schema().Model.GetRootAs(content, 0)
    needed = graphs_of_signature(model, signature)
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        if number not in needed and graph.OperatorsLength() > _KEPT:
            yield graph._tab.Vector(graph._tab.Offset(_OPERATORS)) - _LENGTH.size


def graphs_of_signature(model: Any, signature: str) -> set[int]:
    """Numbers of the graphs that a signature runs."""
    definitions = [model.SignatureDefs(index) for index in range(model.SignatureDefsLength())]
    found = [each.SubgraphIndex() for each in definitions if each.SignatureKey() == signature.encode()]
    kinds = operator_kinds(model)
    needed: set[int] = set()
    while found:
        number = found.pop()
        if number in needed:
            continue
        needed.add(number)
        graph = model.Subgraphs(number)
        for position in range(graph.OperatorsLength()):
            operator = graph.Operators(position)
            found += called_graphs(kinds[operator.OpcodeIndex()], operator)
    return needed
