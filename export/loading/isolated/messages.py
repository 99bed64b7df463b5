"""What the process of an untrusted bundle replies: JSON and the bytes of arrays, which nothing but data can come from.

A reply is the length of the JSON in 8 bytes, the JSON, and the arrays one after another.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_transformer.export import errors
from keras_transformer.utils.errors import one_line, revived

LENGTH = struct.Struct("<Q")
_LARGEST_TEXT = 2**26
_KINDS = {"b", "i", "u", "f", "c"}


def encoded(value: object) -> list[bytes]:
    """The parts of a reply with a value: a dict of arrays, or numbers, texts and lists of them."""
    if not isinstance(value, dict):
        return _parts({"value": value}, [])
    arrays = [np.ascontiguousarray(each).reshape(np.shape(each)) for each in value.values()]
    records = [_record(name, array) for name, array in zip(value, arrays, strict=True)]
    return _parts({"arrays": records}, [each for each in arrays if each.dtype.kind in _KINDS])


def encoded_error(error: BaseException) -> list[bytes]:
    """The parts of a reply with an error."""
    state = {name: value for name, value in vars(error).items() if isinstance(value, str)}
    return _parts({"class": type(error).__name__, "message": one_line(error), "state": state}, [])


def decoded(read: Callable[[int], bytes], limit: int) -> Any:
    """The value of a reply, or the error that it contains, raised.

    Args:
        read: function from a number of bytes to so many bytes.
        limit: the most bytes of the arrays.

    Raises:
        ValueError: the reply is no reply.
        ExportError, GenerationError: what the process raised.
    """
    (length,) = LENGTH.unpack(read(LENGTH.size))
    if length > _LARGEST_TEXT:
        raise ValueError("its reply is too long")
    header = json.loads(read(length))
    if "class" in header:
        raise _error(header)
    if "arrays" not in header:
        return header["value"]
    sizes = [_bytes_of(each) for each in header["arrays"]]
    if sum(sizes) > limit:
        raise ValueError("its reply is too long")
    return {record["name"]: _array(record, read(size)) for record, size in zip(header["arrays"], sizes, strict=True)}


def _error(record: dict[str, Any]) -> Exception:
    """The error in a reply, of a class of this package."""
    from keras_transformer.generation import errors as generation

    name, message = str(record["class"]), str(record["message"])
    state = {str(key): str(value) for key, value in record["state"].items()}
    record = {"class": name, "message": message, "state": state}
    if name in vars(generation):
        return revived(record, generation.GenerationError, vars(generation))
    record = record if name in vars(errors) else {**record, "message": f"{name}: {message}"}
    return revived(record, errors.ExportError, vars(errors))


def _parts(header: dict[str, Any], arrays: list[np.ndarray]) -> list[bytes]:
    text = json.dumps(header, default=_plain).encode("utf-8", "backslashreplace")
    return [LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)]


def _plain(value: Any) -> Any:
    """A number of numpy, or an array, as JSON has it."""
    return value.tolist()


def _record(name: str, array: np.ndarray) -> dict[str, Any]:
    record = {"name": name, "shape": list(array.shape)}
    if array.dtype.kind in _KINDS:
        return {**record, "dtype": array.dtype.name}
    return {**record, "texts": [str(each) for each in array.ravel()]}


def _bytes_of(record: dict[str, Any]) -> int:
    if "texts" in record:
        return 0
    if np.dtype(record["dtype"]).kind not in _KINDS or any(size < 0 for size in record["shape"]):
        raise ValueError("its reply has no numbers")
    return math.prod(record["shape"]) * np.dtype(record["dtype"]).itemsize


def _array(record: dict[str, Any], content: bytes) -> np.ndarray:
    if "texts" in record:
        return np.array(record["texts"], str).reshape(record["shape"])
    return np.frombuffer(bytearray(content), record["dtype"]).reshape(record["shape"])
