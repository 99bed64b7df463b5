"""The graphs that a signature of a TFLite file runs, and the content of a file with the operations of one signature.

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
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from keras_transformer.export.tflite.tree import operator_names, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import Model, Operator, SubGraph, Tensor

_READERS = {
    "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
    "CALL": ("CallOptions", ("Subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("InitSubgraphIndex",)),
}
# Where the table of a graph says that its operators are.
_OPERATORS = 10
_LENGTH = struct.Struct("<I")
_KEPT = 1
_PIECE = 2**24


def operator_kinds(model: Model) -> list[str]:
    """The name of each operator code of a file.

    Args:
        model: `Model`.
    """
    names = operator_names()
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    return [names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "of an unknown kind") for code in codes]


def called_graphs(kind: str, operator: Operator) -> Iterator[int]:
    """The numbers of the graphs that an operator runs.

    Args:
        kind: name of the operator.
        operator: `Operator`.
    """
    table = operator.BuiltinOptions()
    if kind not in _READERS or table is None:
        return
    name, fields = _READERS[kind]
    options = getattr(schema(), name)()
    options.Init(table.Bytes, table.Pos)
    yield from (getattr(options, field)() for field in fields)


def has_dynamic_loop(path: pathlib.Path, signature: str) -> bool:
    """Whether a signature has a loop, one of whose variables has a dynamic shape.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
        signature: name of a signature of it.
    """
    model = schema().Model.GetRootAs(np.memmap(path, "uint8", "r"), 0)
    kinds = operator_kinds(model)
    for number in graphs_of_signature(model, signature):
        graph = model.Subgraphs(number)
        for position in range(graph.OperatorsLength()):
            operator = graph.Operators(position)
            if kinds[operator.OpcodeIndex()] == "WHILE" and _is_dynamic(graph, operator):
                return True
    return False


def _is_dynamic(graph: SubGraph, operator: Operator) -> bool:
    sizes = (graph.Tensors(index).ShapeSignatureAsNumpy() for index in operator.InputsAsNumpy())
    return any((np.atleast_1d(each) < 0).any() for each in sizes if not isinstance(each, int))


def fixed_signatures(path: pathlib.Path) -> list[str]:
    """Names of the signatures whose inputs and outputs have fixed shapes.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
    """
    model = schema().Model.GetRootAs(np.memmap(path, "uint8", "r"), 0)
    definitions = [model.SignatureDefs(index) for index in range(model.SignatureDefsLength())]
    graphs = {each.SignatureKey().decode(): model.Subgraphs(each.SubgraphIndex()) for each in definitions}
    return [name for name, graph in graphs.items() if not any(map(is_dynamic, interface_of(graph)))]


def interface_of(graph: SubGraph) -> Iterator[Tensor]:
    """The inputs and outputs of a graph."""
    yield from (graph.Tensors(graph.Inputs(at)) for at in range(graph.InputsLength()))
    yield from (graph.Tensors(graph.Outputs(at)) for at in range(graph.OutputsLength()))


def is_dynamic(tensor: Tensor) -> bool:
    """Whether a size of a tensor is not known."""
    return any(tensor.ShapeSignature(axis) < 0 for axis in range(tensor.ShapeSignatureLength()))


def content_of(path: pathlib.Path, signature: str) -> bytes:
    """The bytes of a file in which all graphs that a signature does not run end after one operation.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
        signature: name of a signature of it.
    """
    content = io.BytesIO()
    _copy_part(path, [signature], content)
    return content.getvalue()  # Not a copy.


def write_part(path: pathlib.Path, signatures: Iterable[str], target: pathlib.Path) -> None:
    """Writes a file in which all graphs that none of these signatures runs end after one operation.

    Args:
        path: path of the whole file, which was checked: see `check_flatbuffer`.
        signatures: names of signatures of it.
        target: path of the file to write.
    """
    with target.open("wb") as file:
        _copy_part(path, signatures, file)


def _copy_part(path: pathlib.Path, signatures: Iterable[str], target: BinaryIO) -> None:
    places = list(_lengths_of_others(np.memmap(path, "uint8", "r"), signatures))
    with open(path, "rb") as file:
        shutil.copyfileobj(file, target, _PIECE)
    for place in places:
        target.seek(place)
        target.write(_LENGTH.pack(_KEPT))


def _lengths_of_others(content: np.ndarray, signatures: Iterable[str]) -> Iterator[int]:
    """Positions of the numbers of operators of the graphs that no signature of these runs."""
    model = schema().Model.GetRootAs(content, 0)
    needed = set().union(*(graphs_of_signature(model, each) for each in signatures))
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        if number not in needed and graph.OperatorsLength() > _KEPT:
            yield graph._tab.Vector(graph._tab.Offset(_OPERATORS)) - _LENGTH.size


def graphs_of_signature(model: Model, signature: str) -> set[int]:
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
