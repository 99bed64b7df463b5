"""The array functions that samplers use, on numpy; `keras.ops` has the same by the same names."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.utils.types import ArrayLike


class NumpyOps:
    """A namespace: what numpy has as it is, and the few functions that `keras.ops` adds to it."""

    def __getattr__(self, name: str) -> Any:
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
        """The k largest of the last axis, largest first; of equal ones the first, first. Returns values and indices."""
        if k == 1:
            indices = np.argmax(x, axis=-1)[..., None]
            return np.take_along_axis(x, indices, -1), indices.astype("int32")
        if k < x.shape[-1]:
            # Each value that is at least the k-th, so that among equal ones the order of the indices decides.
            threshold = np.partition(x, -k, axis=-1)[..., -k, None]
            if np.all((x >= threshold).sum(axis=-1) == k):
                indices = np.nonzero(x >= threshold)[-1].reshape(*x.shape[:-1], k)
                order = np.argsort(-np.take_along_axis(x, indices, -1), axis=-1, kind="stable")
                indices = np.take_along_axis(indices, order, -1)
                return np.take_along_axis(x, indices, -1), indices.astype("int32")
        indices = np.argsort(-x, axis=-1, kind="stable")[..., :k]
        return np.take_along_axis(x, indices, -1), indices.astype("int32")


numpy_ops = NumpyOps()
