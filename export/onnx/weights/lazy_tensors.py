"""Lazy arrays as tensors of `onnx_ir`, and back."""

from __future__ import annotations

import functools
import pathlib

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.lazy_array import AnyArray, LazyArray, mapped


def tensor_of(array: AnyArray, name: str | None = None) -> ir.TensorProtocol:
    """An array as a tensor of `onnx_ir`, lazy if the array is."""
    if not isinstance(array, LazyArray):
        return ir.tensor(array, name=name)
    dtype = ir.DataType.from_numpy(array.dtype)
    return ir.LazyTensor(functools.partial(_read, array), dtype, ir.Shape(array.shape), name=name)


def _read(array: LazyArray) -> ir.TensorProtocol:
    return ir.tensor(np.asarray(array))


def array_of(tensor: ir.TensorProtocol) -> AnyArray:
    """The array of a tensor: lazy if it is in another file, and the same one if `tensor_of` made it of a lazy array."""
    if isinstance(tensor, ir.ExternalTensor):
        return mapped(pathlib.Path(tensor.path), tensor.offset or 0, tensor.shape.numpy(), tensor.dtype.numpy())
    source = tensor.raw if isinstance(tensor, ir.LazyTensor) else None
    return source.args[0] if isinstance(source, functools.partial) else tensor.numpy()


def constant_of(value: ir.Value) -> AnyArray:
    """The array of an initializer.

    Raises:
        ValueError: the value is none.
    """
    if value.const_value is None:
        raise ValueError(f"{value.name} is no constant")
    return array_of(value.const_value)


def rearranged(tensor: ir.TensorProtocol, perm: list[int], shape: list[int]) -> ir.TensorProtocol:
    """A tensor with its axes in another order and then merged, which is computed when it is read."""
    array = array_of(tensor)
    if not isinstance(array, LazyArray):
        array = LazyArray(functools.partial(np.asarray, array), array.shape, array.dtype)
    change = functools.partial(_rearranged, perm, shape)
    return tensor_of(array.map(change, (tuple(perm), tuple(shape))))


def _rearranged(perm: list[int], shape: list[int], array: np.ndarray) -> np.ndarray:
    return array.transpose(perm).reshape(shape)
