"""TFLite files as object trees: LiteRT's classes of the file format, read and written."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.lazy_array import mapped

if TYPE_CHECKING:
    import flatbuffers
    from ai_edge_litert.schema_py_generated import BufferT, ModelT, OperatorT, TensorT

_IDENTIFIER = b"TFL3"
_ALIGNMENT = 16
# An estimate of the bytes of a tensor or an operator.
_BYTES_PER_ITEM = 512
# A flatbuffer must be smaller. In larger files, buffers from this size on follow it.
_LARGEST, _OUTSIDE = 2**31 - 2**20, 2**16
# LiteRT takes smaller offsets for none.
_UNKNOWN = 2


def schema() -> ModuleType:
    """Returns the module with the classes of the file format, which is part of LiteRT."""
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


def size_of(buffer: BufferT) -> int:
    """Returns the number of bytes of a `BufferT`."""
    return 0 if buffer.data is None else len(buffer.data)


def indices(tensors: Iterable[int] | None) -> tuple[int, ...]:
    """Returns indices of tensors, of which there may be none, as integers."""
    return () if tensors is None else tuple(map(int, tensors))


def other_input(operator: OperatorT, index: int) -> int:
    """Returns the other input of a binary operator."""
    first, second = indices(operator.inputs)
    return second if first == index else first


def shape_of(tensor: TensorT) -> tuple[int, ...]:
    """Returns the shape of a tensor, with dynamic sizes as 1."""
    return tuple(map(int, tensor.shape)) if tensor.shape is not None else ()


def signature_of(tensor: TensorT) -> tuple[int | None, ...]:
    """Returns the shape of a tensor, with dynamic sizes as None."""
    sizes = tensor.shapeSignature if tensor.shapeSignature is not None and len(tensor.shapeSignature) else tensor.shape
    return tuple(None if size < 0 else int(size) for size in ([] if sizes is None else sizes))


@functools.cache
def operator_names() -> dict[int, str]:
    """Returns a dict of operator code to name."""
    return {number: name for name, number in vars(schema().BuiltinOperator).items() if name.isupper()}


@functools.cache
def type_names() -> dict[int, str]:
    """Returns a dict of tensor type to name, such as `"FLOAT32"`."""
    return {number: name for name, number in vars(schema().TensorType).items() if name.isupper()}


def add_buffer(model: ModelT, data: Any) -> int:
    """Adds a buffer with the values of an array, or with data that becomes one when it is read; returns its index."""
    buffer = schema().BufferT()
    is_array = isinstance(data, np.ndarray)
    buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), "uint8") if is_array else data
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def read(content: Any) -> ModelT:
    """Parses the content of a file into its object tree.

    Args:
        content: bytes of a .tflite file, or an array of them.

    Returns:
        `ModelT`. Its buffers are views of `content`: they can be replaced, but not written.
    """
    return schema().ModelT.InitFromObj(schema().Model.GetRootAs(content, 0))


def read_file(path: pathlib.Path) -> ModelT:
    """Parses a file into its object tree.

    Args:
        path: path of a .tflite file.

    Returns:
        `ModelT`. Its buffers are mapped from the file; those behind the flatbuffer are read each time.
    """
    model = read(np.memmap(path, "uint8", "r"))
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = mapped(path, buffer.offset, (buffer.size,), "uint8")
    return model


def write(model: ModelT) -> bytes:
    """Serializes an object tree, with every buffer aligned to 16 bytes, as kernels expect.

    Args:
        model: `ModelT`.

    Returns:
        bytes.
    """
    return bytes(_serialized(model, {}))


def write_file(model: ModelT, path: pathlib.Path) -> None:
    """Writes an object tree to a file, as `write` does, with its content once in memory.

    Where that would be more than 2 GB, large buffers are written behind the flatbuffer, one at a time.

    Args:
        model: `ModelT`, whose buffers may be mapped from the same file.
        path: path of the file.
    """
    is_large = sum(map(size_of, model.buffers)) > _LARGEST
    outside = [each for each in model.buffers if is_large and size_of(each) >= _OUTSIDE]
    # The flatbuffer is as long whatever the offsets are.
    end = len(_serialized(model, {id(each): _UNKNOWN for each in outside})) if outside else 0
    offsets = {}
    for each in outside:
        offsets[id(each)] = end = -(-end // _ALIGNMENT) * _ALIGNMENT
        end += size_of(each)
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        file.write(_serialized(model, offsets))
        for each in outside:
            file.seek(offsets[id(each)])
            file.write(_bytes_of(each).data)
    os.replace(partial, path)


def _serialized(model: Any, offsets: Mapping[int, int]) -> memoryview:
    """The flatbuffer; `offsets` has the places of the buffers outside of it, by id."""
    import flatbuffers

    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    operators = sum(len(graph.operators) for graph in model.subgraphs)
    shared = {id(tensor.quantization): tensor.quantization for tensor in tensors}
    parameters = [each for each in shared.values() if each is not None]
    for buffer in model.buffers:
        offset = offsets.get(id(buffer))
        buffer.Pack = _packer(buffer) if offset is None else _outside_packer(buffer, offset)
    for each in parameters:
        # The scales of a large table are large: tensors that share the object share its bytes.
        each.Pack = functools.cache(each.Pack)
    # A builder that is too small doubles in size, and is copied.
    size = sum(size_of(each) + 2 * _ALIGNMENT for each in model.buffers if id(each) not in offsets)
    builder = flatbuffers.Builder(size + _BYTES_PER_ITEM * (len(tensors) + operators) + 2**16)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    for each in (*model.buffers, *parameters):
        del each.Pack
    return memoryview(builder.Bytes)[builder.Head() :]


def _packer(buffer: BufferT) -> Callable[[flatbuffers.Builder], int]:
    """`Pack` of one buffer; the generated one does not align weights."""

    def pack(builder: flatbuffers.Builder) -> int:
        vector = None
        if size_of(buffer):
            raw = _bytes_of(buffer)
            builder.StartVector(1, raw.size, _ALIGNMENT)
            builder.head -= raw.size
            np.frombuffer(builder.Bytes, "uint8")[builder.head : builder.head + raw.size] = raw
            vector = builder.EndVector()
        schema().BufferStart(builder)
        if vector is not None:
            schema().BufferAddData(builder, vector)
        return schema().BufferEnd(builder)

    return pack


def _outside_packer(buffer: BufferT, offset: int) -> Callable[[flatbuffers.Builder], int]:
    """`Pack` of a buffer behind the flatbuffer."""

    def pack(builder: flatbuffers.Builder) -> int:
        schema().BufferStart(builder)
        schema().BufferAddOffset(builder, offset)
        schema().BufferAddSize(builder, size_of(buffer))
        return schema().BufferEnd(builder)

    return pack


def _bytes_of(buffer: BufferT) -> np.ndarray:
    return np.ascontiguousarray(buffer.data).reshape(-1).view("uint8")
