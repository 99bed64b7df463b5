"""Protocol buffers in text format, for configuration files of servers, without the protobuf library."""

from __future__ import annotations

import json

from keras_transformer.utils.types import JsonObject


class Enum(str):
    """The name of an enum value, which is written without quotes."""


def text_proto(fields: JsonObject, indent: str = "") -> str:
    """Returns fields in text format.

    Args:
        fields: dict of name to value: a dict is a message, a list a field that is repeated, None a field left out;
            otherwise a `bool`, a number, an `Enum` or a `str`.
        indent: str, in front of every line.

    Returns:
        str, one line for each field, ended by a newline.

    Example:

    >>> print(text_proto({"name": "digits", "input": [{"kind": Enum("TYPE_FP32"), "dims": [8, 8]}]}), end="")
    name: "digits"
    input {
      kind: TYPE_FP32
      dims: 8
      dims: 8
    }
    """
    lines = []
    for name, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                lines.append(f"{indent}{name} {{\n{text_proto(each, indent + '  ')}{indent}}}\n")
            elif each is not None:
                lines.append(f"{indent}{name}: {_scalar(each)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) and not isinstance(value, Enum) else str(value)
