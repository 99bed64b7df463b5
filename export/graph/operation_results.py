"""The operands and results of TensorFlow's operations. Functions name results by part, `"output:1"`, graphs by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tensorflow.python.framework import op_def_registry

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.op_def_pb2 import OpDef


def result_offsets(kind: str, attributes: Mapping[str, AttrValue]) -> tuple[dict[str, int], int]:
    """Where each named part of the results begins, and how many results there are.

    Args:
        kind: name of the operation, such as `"Split"`.
        attributes: dict of name to `AttrValue`.
    """
    definition: OpDef = op_def_registry.get(kind)
    offsets: dict[str, int] = {}
    count = 0
    for each in definition.output_arg:
        offsets[each.name] = count
        if each.number_attr:
            count += attributes[each.number_attr].i
        elif each.type_list_attr:
            count += len(attributes[each.type_list_attr].list.type)
        else:
            count += 1
    return offsets, count


def result_part(kind: str, attributes: Mapping[str, AttrValue], number: int) -> str:
    """The name in a function of one result: its part, and its number in that.

    Args:
        kind: name of the operation.
        attributes: dict of name to `AttrValue`.
        number: of the result.

    Example:

    >>> result_part("MatMul", {}, 0)
    'product:0'
    """
    offsets, _ = result_offsets(kind, attributes)
    name = max((name for name in offsets if offsets[name] <= number), key=lambda name: offsets[name])
    return f"{name}:{number - offsets[name]}"


def result_types(kind: str, attributes: Mapping[str, AttrValue]) -> list[int]:
    """The data types of all results, as TensorFlow numbers them.

    Args:
        kind: name of the operation.
        attributes: dict of name to `AttrValue`.

    Example:

    >>> result_types("NonMaxSuppressionV3", {})  # int32
    [3]
    """
    definition: OpDef = op_def_registry.get(kind)
    return _types(definition.output_arg, attributes)


def operand_types(kind: str, attributes: Mapping[str, AttrValue]) -> list[int]:
    """The data types of all operands, as TensorFlow numbers them.

    Args:
        kind: name of the operation.
        attributes: dict of name to `AttrValue`.

    Example:

    >>> operand_types("AudioSpectrogram", {})  # float32
    [1]
    """
    definition: OpDef = op_def_registry.get(kind)
    return _types(definition.input_arg, attributes)


def _types(arguments: Iterable[OpDef.ArgDef], attributes: Mapping[str, AttrValue]) -> list[int]:
    found: list[int] = []
    for each in arguments:
        if each.type_list_attr:
            found += attributes[each.type_list_attr].list.type
        else:
            dtype = attributes[each.type_attr].type if each.type_attr else each.type
            found += [dtype] * (attributes[each.number_attr].i if each.number_attr else 1)
    return found


def result_type(kind: str, attributes: Mapping[str, AttrValue]) -> int:
    """The data type of the first result, as TensorFlow numbers it.

    Args:
        kind: name of the operation, with one result or more.
        attributes: dict of name to `AttrValue`.

    Example:

    >>> result_type("ResizeBilinear", {})  # float32
    1
    """
    return result_types(kind, attributes)[0]
