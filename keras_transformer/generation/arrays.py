"""The subset of `keras.ops` that samplers use, implemented with numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from keras_transformer.utils.types import ArrayLike


class ArrayFunctions(Protocol):
    """Functions of arrays by the names of `keras.ops`: that module, or `numpy_ops`."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


class NumpyOps:
    """The functions of numpy, and those of `keras.ops` that numpy lacks."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(np, name)

    @staticmethod
    def cast(x: ArrayLike, dtype: str) -> np.ndarray:
        return np.asarray(x).astype(dtype)

    @staticmethod
    def softmax(x: ArrayLike, axis: int = -1) -> np.ndarray:
        shifted = np.exp(x - x.max(axis=axis, keepdims=True))
        return shifted / shifted.sum(axis=axis, keepdims=True)

    @staticmethod
    def log_softmax(x: ArrayLike, axis: int = -1) -> np.ndarray:
        shifted = x - x.max(axis=axis, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))

    @staticmethod
    def top_k(x: ArrayLike, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns values and indices of the k largest along the last axis, in descending order; ties by index."""
        if k == 1:
            indices = np.argmax(x, axis=-1)[..., None]
            return x.max(axis=-1, keepdims=True), indices.astype("int32")
        if k < x.shape[-1]:
            # Valid only without ties at the k-th value; otherwise a stable sort orders ties by index.
            threshold = np.partition(x, -k, axis=-1)[..., -k, None]
            if np.all((x >= threshold).sum(axis=-1) == k):
                indices = np.nonzero(x >= threshold)[-1].reshape(*x.shape[:-1], k)
                order = np.argsort(-np.take_along_axis(x, indices, -1), axis=-1, kind="stable")
                indices = np.take_along_axis(indices, order, -1)
                return np.take_along_axis(x, indices, -1), indices.astype("int32")
        indices = np.argsort(-x, axis=-1, kind="stable")[..., :k]
        return np.take_along_axis(x, indices, -1), indices.astype("int32")


numpy_ops = NumpyOps()
