"""Masks that Keras attaches to tensors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras


def get_mask(x: Tensor | None) -> Tensor | None:
    """Returns the mask that Keras attached to a tensor, or None."""
    return getattr(x, "_keras_mask", None)


def set_mask(x: keras.KerasTensor, mask: Tensor | None) -> None:
    """Attaches a mask to a tensor, where its class allows it and the mask is not None."""
    if mask is not None:
        with contextlib.suppress(AttributeError):
            x._keras_mask = mask
