"""The container of GGUF files: their metadata, and their tensors by name, which are read one at a time.

The `gguf` package decodes the blocks of quantized tensors. It reads the head of a file as well, but believes every count and
length in it; here each one is compared with what is left of the file before memory is taken for it.

Reference: the specification of GGUF, versions 2 and 3, in the repository of ggml.
"""

from __future__ import annotations

import math
import pathlib
import struct
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.checkpoints.errors import CorruptFileError, MissingFileError
from keras_transformer.checkpoints.gguf.library import library
from keras_transformer.utils.types import JsonObject, Path

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_ALIGNMENT = "general.alignment"
# By number: the kinds of values in the metadata, other than strings and arrays.
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
# The fewest bytes of a string, of an array, of an entry of the metadata and of the description of a tensor.
_LEAST_STRING, _LEAST_ARRAY, _LEAST_ENTRY, _LEAST_TENSOR = 8, 12, 13, 24
_MOST_AXES, _DEEPEST = 4, 4
_UNQUANTIZED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


class StoredTensor(NamedTuple):
    """A tensor in the file.

    Attributes:
        kind: ggml's name of the type of its blocks, such as `"Q4_1"` or `"F32"`.
        shape: sizes of the axes; blocks lie along the last one.
        start: of its bytes in the file.
        size: number of its bytes.
    """

    kind: str
    shape: tuple[int, ...]
    start: int
    size: int


class Container:
    """A GGUF file, of which only the head is in memory.

    Args:
        path: str or path of the file.

    Attributes:
        metadata: dict of key to value: a number, a bool, a string, or a list or array of those.
        tensors: dict of name to `StoredTensor`.

    Raises:
        MissingFileError: there is no such file.
        CorruptFileError: it is no GGUF file of version 2 or 3, is big-endian, or a count, a length, an offset or a type in
            it is impossible.
    """

    def __init__(self, path: Path) -> None:
        self.path = pathlib.Path(path)
        if not self.path.is_file():
            raise MissingFileError(f"No such file: {self.path}")
        self._bytes = np.memmap(self.path, mode="r") if self.path.stat().st_size else np.zeros(0, "uint8")
        cursor = _Cursor(self._bytes, self.path)
        num_tensors, num_entries = _read_counts(cursor)
        self.metadata = _read_metadata(cursor, num_entries)
        self.tensors = _read_tensors(cursor, num_tensors, self.metadata)

    def blocks(self, name: str) -> np.ndarray:
        """The bytes of a tensor as they are in the file, `(..., bytes of a row)`, uint8."""
        tensor = self.tensors[name]
        return self._bytes[tensor.start : tensor.start + tensor.size].reshape(*tensor.shape[:-1], -1)

    def read(self, name: str) -> np.ndarray:
        """The values of a tensor: as they are if they are numbers, or float32 if they are blocks."""
        tensor, blocks = self.tensors[name], self.blocks(name)
        if tensor.kind in _UNQUANTIZED:
            return blocks.view(_UNQUANTIZED[tensor.kind])
        if tensor.kind == "BF16":
            import ml_dtypes

            return blocks.view(ml_dtypes.bfloat16)
        kind = library().GGMLQuantizationType[tensor.kind]
        try:
            return library().quants.dequantize(np.asarray(blocks), kind)
        except NotImplementedError as error:
            raise CorruptFileError(
                f"{self.path}: {name!r} has blocks of the type {tensor.kind}, which cannot be read"
            ) from error


class _Cursor:
    """Reads the head of a file from its beginning to its end.

    Args:
        data: bytes of the file.
        path: for errors.
    """

    def __init__(self, data: np.ndarray, path: pathlib.Path) -> None:
        self._data, self._path, self.position = data, path, 0

    @property
    def left(self) -> int:
        """Bytes that are left."""
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.left:
            raise self.error(f"it ends {count - self.left} bytes before the end of a value")
        start, self.position = self.position, self.position + count
        return self._data[start : self.position].tobytes()

    def unpack(self, format: str) -> tuple[Any, ...]:
        """The next numbers, little-endian."""
        return struct.unpack(f"<{format}", self.take(struct.calcsize(f"<{format}")))

    def text(self) -> str:
        """The next string."""
        (length,) = self.unpack("Q")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def check_count(self, count: int, least: int, what: str) -> None:
        """Refuses a count of items, of at least `least` bytes each, that cannot be in the rest of the file."""
        if count * least > self.left:
            raise self.error(f"it says to have {count} {what}, with {self.left} bytes left")

    def error(self, reason: str) -> CorruptFileError:
        """The error for a file that is invalid."""
        return CorruptFileError(f"{self._path} is not a valid GGUF file: {reason}.")


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    """The numbers of tensors and of entries of the metadata."""
    if cursor.left < 4 or cursor.take(4) != _MAGIC:
        raise cursor.error("it does not begin with 'GGUF'")
    (version,) = cursor.unpack("I")
    if version not in _VERSIONS:
        is_swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
        raise cursor.error("it is big-endian" if is_swapped else f"its version is {version}, expected 2 or 3")
    num_tensors, num_entries = cursor.unpack("QQ")
    cursor.check_count(num_tensors, _LEAST_TENSOR, "tensors")
    cursor.check_count(num_entries, _LEAST_ENTRY, "entries of metadata")
    return num_tensors, num_entries


def _read_metadata(cursor: _Cursor, count: int) -> JsonObject:
    metadata: JsonObject = {}
    for _ in range(count):
        key = cursor.text()
        if key in metadata:
            raise cursor.error(f"it has {key[:80]!r} twice")
        metadata[key] = _read_value(cursor, cursor.unpack("I")[0])
    return metadata


def _read_value(cursor: _Cursor, kind: int, depth: int = 0) -> Any:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _read_array(cursor, depth + 1)
    if kind not in _NUMBERS:
        raise cursor.error(f"a value is of the unknown type {kind}")
    dtype = np.dtype(_NUMBERS[kind])
    value = np.frombuffer(cursor.take(dtype.itemsize), dtype)[0]
    # 1e-05 again, and not the nearest float64 of its float32.
    return float(str(value)) if kind == _FLOAT32 else value.item()


def _read_array(cursor: _Cursor, depth: int) -> np.ndarray | list[object]:
    kind, count = cursor.unpack("IQ")
    if kind in _NUMBERS:
        dtype = np.dtype(_NUMBERS[kind])
        cursor.check_count(count, dtype.itemsize, "numbers in an array")
        return np.frombuffer(cursor.take(count * dtype.itemsize), dtype)
    if depth > _DEEPEST:
        raise cursor.error("arrays are nested too deeply")
    cursor.check_count(count, _LEAST_ARRAY if kind == _ARRAY else _LEAST_STRING, "items in an array")
    return [_read_value(cursor, kind, depth) for _ in range(count)]


def _read_tensors(cursor: _Cursor, count: int, metadata: JsonObject) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for _ in range(count):
        name = cursor.text()
        if name in found:
            raise cursor.error(f"it has the tensor {name[:80]!r} twice")
        found[name] = _read_tensor(cursor, name)
    start = _data_start(cursor, metadata)
    end = cursor.position + cursor.left
    tensors = {name: each._replace(start=start + each.start) for name, each in found.items()}
    free = start
    # Tensors that share their bytes would let a small file fill the memory.
    for name, each in sorted(tensors.items(), key=lambda item: item[1].start):
        if each.start < free or each.start + each.size > end:
            raise cursor.error(f"the bytes of the tensor {name[:80]!r} overlap others or the end of the file")
        free = each.start + each.size
    return tensors


def _read_tensor(cursor: _Cursor, name: str) -> StoredTensor:
    """A tensor, with its start relative to those of all tensors."""
    (num_axes,) = cursor.unpack("I")
    if not 1 <= num_axes <= _MOST_AXES:
        raise cursor.error(f"the tensor {name[:80]!r} has {num_axes} axes")
    sizes = cursor.unpack(f"{num_axes}Q")
    number, start = cursor.unpack("IQ")
    try:
        kind = library().GGMLQuantizationType(number)
    except ValueError:
        raise cursor.error(f"the tensor {name[:80]!r} is of the unknown type {number}") from None
    block, size = library().GGML_QUANT_SIZES[kind]
    if 0 in sizes or sizes[0] % block:
        raise cursor.error(f"the tensor {name[:80]!r} has rows of {sizes[0]} numbers, in blocks of {block}")
    return StoredTensor(kind.name, tuple(reversed(sizes)), start, math.prod(sizes) // block * size)


def _data_start(cursor: _Cursor, metadata: JsonObject) -> int:
    alignment = metadata.get(_ALIGNMENT, library().GGUF_DEFAULT_ALIGNMENT)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.error(f"{_ALIGNMENT} is {str(alignment)[:40]!r}, expected a power of two")
    return -(-cursor.position // alignment) * alignment
