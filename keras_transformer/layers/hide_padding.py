"""Zeros for padding."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor


def hide_padding(inputs: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Returns inputs `(B, T, D)` with zeros for padding, where `padding_mask` `(B, T)` is False; all of them for None."""
    if padding_mask is None:
        return inputs
    return ops.where(ops.expand_dims(ops.cast(padding_mask, "bool"), -1), inputs, ops.zeros_like(inputs))
