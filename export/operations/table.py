"""The table of operations: `OPERATIONS`, by the name that an operation has in a graph of TensorFlow."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras_transformer.export.errors import ExportError, UnknownFormatError, UnsupportedOpError
from keras_transformer.export.operations import families
from keras_transformer.export.operations.computing import COMPUTING
from keras_transformer.export.operations.families.numbers import complex_numbers, narrow_integers
from keras_transformer.export.operations.operation import ONNX, TFLITE, Decomposed, Lowering, Native, Operation
from keras_transformer.export.remedies import Remedy


def _entries() -> Iterator[Operation]:
    """The entries of all modules of `families`; one may serve others only."""
    for each in pkgutil.walk_packages(families.__path__, f"{families.__name__}."):
        yield from getattr(importlib.import_module(each.name), "OPERATIONS", ())


OPERATIONS: dict[str, Operation] = {each.name: each for each in _entries()}
for _kind in (complex_numbers.OF_COMPLEX, narrow_integers.OF_NARROW):
    for _name, _lowerings in _kind.items():
        OPERATIONS[_name] = OPERATIONS.get(_name, Operation(_name)).preceded_by(_lowerings)
# What users have registered, by format and operation.
_REGISTERED: dict[str, dict[str, Decomposed]] = {TFLITE: {}, ONNX: {}}


def register_lowering(
    operation: str, format: str, function: Callable[..., Any], attributes: Sequence[str] = ()
) -> None:
    """Tells exports what to do with an operation of TensorFlow that a format does not have.

    The function takes the place of the operation in every export of this process from then on; what the table says of the
    operation no longer counts. The file is compared with the model like every other one, so that a wrong function is found.

    Args:
        operation: name of the operation in the graph, as an `UnsupportedOpError` tells it, such as `"Betainc"`.
        format: `"tflite"` or `"onnx"`.
        function: takes the inputs of the operation as tensors, and the attributes by keyword; returns its result, or a list
            of its results, by operations of TensorFlow. It is traced for the shapes and types of each node.
        attributes: names of the attributes of the operation that the function takes.

    Raises:
        UnknownFormatError: the format does not exist, or does not convert the operations of a graph.
        ExportError: TensorFlow has no such operation.

    Example:

    >>> import tensorflow as tf
    >>> from keras_transformer.export import register_lowering
    >>> register_lowering("Xdivy", "onnx", lambda x, y: tf.math.divide_no_nan(x, y))
    """
    from tensorflow.python.framework import op_def_registry

    if format not in _REGISTERED:
        raise UnknownFormatError(format, _REGISTERED)
    if op_def_registry.get(operation) is None:
        raise ExportError(f"TensorFlow has no operation '{operation}'")
    _REGISTERED[format][operation] = Decomposed(function, tuple(attributes))


def lowerings_in(format: str) -> dict[str, tuple[Lowering, ...]]:
    """What becomes of the operations that a format does not keep: for each its lowerings, in the order of precedence."""
    found = {name: each.lowerings_in(format) for name, each in OPERATIONS.items() if each.lowerings_in(format)}
    for name, each in _REGISTERED.get(format, {}).items():
        found[name] = (each,)
    return found


def unsupported(format: str, found: Sequence[tuple[str, str]], hint: str = "") -> UnsupportedOpError:
    """The error of operations that the converter of a format does not take, with the remedy of the table if it has one.

    Args:
        format: name of the format.
        found: the operations, `(operation, layer)` pairs.
        hint: why, or "".
    """
    (op, layer), *others = found
    remedies = [OPERATIONS[name].remedies.get(format, "") for name, _ in found if name in OPERATIONS]
    if own := next(filter(None, remedies), ""):
        return UnsupportedOpError(format, op, layer, others, "; ".join(filter(None, (hint, own))))
    computes = all(name in COMPUTING for name, _ in found)
    return UnsupportedOpError(format, op, layer, others, hint, Remedy.OPERATION if computes else Remedy.EFFECT)


def native_builders(format: str) -> Mapping[str, Callable[..., None]]:
    """The builders of operations that become operators of a format's own."""
    lowerings = lowerings_in(format)
    natives = {name: [each for each in found if isinstance(each, Native)] for name, found in lowerings.items()}
    return {name: found[0].build for name, found in natives.items() if found}
