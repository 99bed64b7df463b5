"""The graphs of a TFLite file that operations of another graph run: bodies and conditions of loops, branches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from keras_transformer.export.tflite.graph import operator_names
from keras_transformer.export.tflite.tree import schema

_READERS = {
    "WHILE": ("WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex")),
    "IF": ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex")),
    "CALL": ("CallOptions", ("Subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("InitSubgraphIndex",)),
}


def operator_kinds(model: Any) -> list[str]:
    """The name of each operator code of a file.

    Args:
        model: `Model`.
    """
    names = operator_names()
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    return [names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "of an unknown kind") for code in codes]


def called_graphs(kind: str, operator: Any) -> Iterator[int]:
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
