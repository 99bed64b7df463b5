"""Tensors of the Open Inference Protocol as arrays: names of data types, nested or flat lists, and binary contents."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from keras_transformer.export.serving.requests import RequestError

# The datatypes that numpy knows; strings are BYTES.
DATATYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "string": "BYTES",
}
_DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
_BYTES = "BYTES"
_MAX_RANK = 32


def datatype_of(array: np.ndarray) -> str:
    """The datatype of an output.

    >>> datatype_of(np.zeros(2, "float32")), datatype_of(np.array(["a"]))
    ('FP32', 'BYTES')
    """
    return _BYTES if array.dtype.kind in "USO" else DATATYPES[array.dtype.name]


def check_tensor(name: object, datatype: object, shape: Any) -> None:
    """Checks what a client says about a tensor, before its content is read.

    Raises:
        RequestError: 400 for a name that is no text, an unknown datatype, or an invalid shape.
    """
    if not isinstance(name, str):
        raise RequestError(400, "each input needs a 'name'")
    if not isinstance(datatype, str) or datatype not in _DTYPES:
        raise RequestError(400, f"input '{name:.80}': the datatype must be one of {', '.join(_DTYPES)}")
    is_shape = isinstance(shape, (list, tuple)) and len(shape) <= _MAX_RANK
    if not is_shape or not all(type(size) is int and 0 <= size < 2**31 for size in shape):
        raise RequestError(400, f"input '{name:.80}': the shape must be a list of at most {_MAX_RANK} sizes")


def from_lists(name: str, datatype: str, shape: list[int], data: object) -> np.ndarray:
    """An array of nested or flat lists.

    Raises:
        RequestError: 400 if the values do not fit the datatype or the shape.
    """
    if datatype == _BYTES:
        texts = _flat(data)
        if not all(isinstance(each, str) for each in texts):
            raise RequestError(400, f"input '{name}': BYTES in JSON are texts")
        return _shaped(name, np.array(texts, dtype=str if texts else "U1"), shape)
    try:
        array = np.asarray(data)
    except ValueError:
        raise RequestError(400, f"input '{name}': the data are a ragged list") from None
    target = np.dtype(_DTYPES[datatype])
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and target.kind != "f"):
        raise RequestError(400, f"input '{name}': the data are no {datatype}")
    with np.errstate(all="ignore"):
        cast = array.astype(target)
    if array.dtype.kind != "f" and not np.array_equal(cast, array):
        raise RequestError(400, f"input '{name}': the data have values outside the range of {datatype}")
    return _shaped(name, cast, shape)


def from_bytes(name: str, datatype: str, shape: list[int], raw: memoryview) -> np.ndarray:
    """An array of binary content, in the byte order of the protocol, little endian. Numbers are not copied.

    Raises:
        RequestError: 400 if the size does not fit the shape.
    """
    if datatype == _BYTES:
        return _shaped(name, np.array(_texts(name, raw), dtype=str), shape)
    dtype = np.dtype(_DTYPES[datatype]).newbyteorder("<")
    expected = math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise RequestError(400, f"input '{name}': {len(raw)} bytes, expected {expected} for {datatype} {list(shape)}")
    if datatype == "BOOL":
        values = np.frombuffer(raw, "uint8")
        if values.size and values.max() > 1:
            raise RequestError(400, f"input '{name}': a BOOL is 0 or 1")
        return values.view(bool).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


def to_bytes(array: np.ndarray) -> bytes:
    """The binary content of an output.

    >>> to_bytes(np.array(["é"]))
    b'\\x02\\x00\\x00\\x00\\xc3\\xa9'
    """
    if datatype_of(array) != _BYTES:
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    texts = [str(each).encode() for each in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _texts(name: str, raw: memoryview) -> list[str]:
    """Texts, each after its length in four bytes."""
    texts, start = [], 0
    while start < len(raw):
        length = int.from_bytes(raw[start : start + 4], "little")
        end = start + 4 + length
        if start + 4 > len(raw) or end > len(raw):
            raise RequestError(400, f"input '{name}': the last text is incomplete")
        try:
            texts.append(str(raw[start + 4 : end], "utf-8"))
        except UnicodeDecodeError:
            raise RequestError(400, f"input '{name}': a text is not UTF-8") from None
        start = end
    return texts


def _flat(data: object) -> list[object]:
    level = data if isinstance(data, list) else [data]
    while any(isinstance(each, list) for each in level):
        level = [child for each in level for child in (each if isinstance(each, list) else [each])]
    return level


def _shaped(name: str, array: np.ndarray, shape: list[int]) -> np.ndarray:
    if array.size != math.prod(shape):
        raise RequestError(400, f"input '{name}': {array.size} values, expected {math.prod(shape)} for {list(shape)}")
    return array.reshape(shape)
